"""Prompts of a language model, its replies, and a cache of them, so that a run can be continued."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, Self

import orjson

from taugate.storage.folders import cache_folder
from taugate.storage.sqlite_cache import SqliteCache

MAX_REPLY = 64  # tokens: a longer reply is no question
# Sampling as in section 3 and appendix A.1 of "Unsupervised Domain Adaption for Neural Information Retrieval".
TEMPERATURE = 1.0
TOP_P = 0.9
_NOTHING = "none"  # the reply to a document with too little information, as in the diversity paper (§3.2.1)


class Prompt(Protocol):
    """A prompt; equal prompts get the same reply."""

    @property
    def seed(self) -> int:
        """Seed of the model's sampling, 0 ≤ seed < 2^31."""
        ...

    def completion(self) -> str:
        """Return the prompt as text that a model continues."""
        ...

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt as messages of a chat."""
        ...


def query_in(reply: str) -> str:
    """Return the query in a reply: the first line with text, without a label, a number or quotes around it."""
    # Returns the query, or "" if there is no such line.
    for line in reply.splitlines():
        query = " ".join(line.split()).strip("*_# ")
        for label in ("relevant query:", "question:", "query:", "1."):
            if query.casefold().startswith(label):
                query = query[len(label) :].strip("*_ ")
        for first, last in ('""', "''", "“”", "„“", "«»", "「」"):
            if len(query) > 1 and query.startswith(first) and query.endswith(last):
                query = query[1:-1].strip()
        if query:
            return "" if query.rstrip(".").casefold() == _NOTHING else query
    return ""


class Completion(NamedTuple):
    """A model's reply to one prompt."""

    text: str
    prompt_tokens: int  # number of tokens read, as counted by the model; 0 if unknown
    reply_tokens: int  # number of tokens written, as counted by the model; 0 if unknown
    seconds: float


class LanguageModel(Protocol):
    """A language model that writes queries."""

    name: str
    identity: str  # identifies the model and its parameters: models of equal identity give the same reply to a prompt
    parallel: int  # number of prompts processed concurrently

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt. Up to `parallel` threads may call this at the same time."""
        ...

    def close(self) -> None:
        """Stop waiting for the model; running calls of `ask` may raise any exception."""
        ...


class ReplyCache(SqliteCache):
    """The replies of one model, keyed by the SHA-256 of the prompt, its seed and the sampling parameters."""

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


def ask(
    prompts: Sequence[Prompt], model: LanguageModel, cache: ReplyCache, advance: Callable[[], None]
) -> dict[Prompt, Completion]:
    """Ask a model, and cache each reply at once; returns the reply to each prompt.

    Args:
        cache: Cache of the model's replies.
        advance: Called after each reply.
    """
    replies: dict[Prompt, Completion] = {}
    workers = ThreadPoolExecutor(model.parallel, thread_name_prefix="model")
    try:
        prompt_of = {workers.submit(model.ask, prompt): prompt for prompt in prompts}
        for future in as_completed(prompt_of):
            replies[prompt_of[future]] = future.result()
            cache.put(prompt_of[future], future.result())
            advance()
    finally:
        model.close()
        workers.shutdown(wait=False, cancel_futures=True)
    return replies
