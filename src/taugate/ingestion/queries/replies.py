"""A cache of a language model's replies on disk, so that an interrupted run can be continued."""

import sqlite3
from hashlib import sha256
from typing import NamedTuple, Protocol, Self

import orjson

from taugate.ingestion.queries.prompt import MAX_REPLY, TEMPERATURE, TOP_P, Prompt
from taugate.storage.folders import cache_folder

_TABLE = """
CREATE TABLE IF NOT EXISTS reply
(key BLOB PRIMARY KEY, text TEXT, prompt_tokens INTEGER, reply_tokens INTEGER, seconds REAL) WITHOUT ROWID
"""


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


class ReplyCache:
    """The replies of one model, keyed by the SHA-256 of the prompt, its seed and the sampling parameters.

    SQLite, as for embeddings: safe against kill -9 and against concurrent runs. A cache that cannot be used is
    equivalent to an empty one, so its own failures never end a run; `failure` describes them.

    Attributes:
        model: Model that wrote the replies.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.failure: str | None = None
        self._database: sqlite3.Connection | None = None
        path = cache_folder() / "replies" / f"{sha256(model.identity.encode()).hexdigest()[:32]}.sqlite"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=30)
            self._database.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            self._give_up(f"{path}: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def get(self, prompt: Prompt) -> Completion | None:
        """Return the cached reply to a prompt, or None."""
        try:
            if self._database is None:
                return None
            row = self._database.execute(
                "SELECT text, prompt_tokens, reply_tokens, seconds FROM reply WHERE key = ?", (_key(prompt),)
            ).fetchone()
            return None if row is None else Completion(str(row[0]), int(row[1]), int(row[2]), float(row[3]))
        except sqlite3.Error as error:
            self._give_up(str(error))
            return None

    def put(self, prompt: Prompt, reply: Completion) -> None:
        """Cache the reply to a prompt."""
        try:
            if self._database is not None:
                with self._database:
                    self._database.execute("INSERT OR IGNORE INTO reply VALUES (?, ?, ?, ?, ?)", (_key(prompt), *reply))
        except sqlite3.Error as error:
            self._give_up(str(error))

    def _give_up(self, failure: str) -> None:
        self._database = None
        self.failure = failure


def _key(prompt: Prompt) -> bytes:
    parameters = [prompt.completion(), prompt.messages(), prompt.seed, TEMPERATURE, TOP_P, MAX_REPLY]
    return sha256(orjson.dumps(parameters)).digest()
