"""A cache of a language model's replies on disk, so that an interrupted run can be continued."""

from hashlib import sha256
from typing import Any, NamedTuple, Protocol, Self

import orjson

from taugate.ingestion.queries.prompt import MAX_REPLY, TEMPERATURE, TOP_P, Prompt
from taugate.storage.folders import cache_folder
from taugate.storage.sqlite_cache import SqliteCache


class Completion(NamedTuple):
    """A model's reply to one prompt.

    Attributes:
        text: Text written by the model.
        prompt_tokens: Number of tokens read, as counted by the model; 0 if unknown.
        reply_tokens: Number of tokens written, as counted by the model; 0 if unknown.
        seconds: Time taken.
    """

    text: str
    prompt_tokens: int
    reply_tokens: int
    seconds: float


class LanguageModel(Protocol):
    """A language model that writes queries.

    Attributes:
        name: Name of the model in the data set.
        identity: Identifies the model and its parameters: models of equal identity give the same reply to a prompt.
        parallel: Number of prompts processed concurrently.
    """

    name: str
    identity: str
    parallel: int

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt. Up to `parallel` threads may call this at the same time.

        Raises:
            InputError: If the model cannot be used.
            OSError: If the model does not respond now.
        """
        ...

    def close(self) -> None:
        """Stop waiting for the model; running calls of `ask` may raise any exception."""
        ...


class ReplyCache(SqliteCache):
    """The replies of one model, keyed by the SHA-256 of the prompt, its seed and the sampling parameters.

    Args:
        model: Model that wrote the replies.
    """

    def __init__(self, model: LanguageModel) -> None:
        path = cache_folder() / "replies" / f"{sha256(model.identity.encode()).hexdigest()[:32]}.sqlite"
        columns = {"prompt_tokens": "INTEGER", "reply_tokens": "INTEGER", "seconds": "REAL"}
        super().__init__(path, "reply", text="TEXT", **columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, prompt: Prompt) -> Completion | None:
        """Return the cached reply to a prompt, or None."""
        row: Any = self.row(_key(prompt))
        return None if row is None else Completion(str(row[0]), int(row[1]), int(row[2]), float(row[3]))

    def put(self, prompt: Prompt, reply: Completion) -> None:
        """Cache the reply to a prompt."""
        self.add([(_key(prompt), *reply)])


def _key(prompt: Prompt) -> bytes:
    parameters = [prompt.completion(), prompt.messages(), prompt.seed, TEMPERATURE, TOP_P, MAX_REPLY]
    return sha256(orjson.dumps(parameters)).digest()
