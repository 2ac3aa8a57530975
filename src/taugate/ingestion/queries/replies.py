"""Keep the replies of a language model on disk, so that a run that was stopped goes on from there."""

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


class Reply(NamedTuple):
    """A model's reply to one prompt.

    Attributes:
        text: What it wrote.
        prompt_tokens: How many it read and wrote, by its own count; 0 where it gives none.
        reply_tokens: How many it read and wrote, by its own count; 0 where it gives none.
        seconds: That it took.
    """

    text: str
    prompt_tokens: int
    reply_tokens: int
    seconds: float


class LanguageModel(Protocol):
    """A language model that writes queries.

    Attributes:
        name: Under which the data set says who wrote a query.
        identity: Tells apart two models, and two ways of asking one: equal ones give the same reply to the same prompt.
        parallel: How many prompts it takes at a time.
    """

    name: str
    identity: str
    parallel: int

    def ask(self, prompt: Prompt) -> Reply:
        """Return the reply to a prompt. Other threads may ask at the same time, `parallel` of them in all.

        Raises:
            InputError: Where the model cannot be used as it is named, and OSError where it does not answer now.
        """
        ...

    def close(self) -> None:
        """Stop waiting for the model; calls of `ask` that are under way may raise anything."""
        ...


class ReplyCache:
    """The replies of one model, keyed by the SHA-256 of the prompt, its seed and how the model samples.

    SQLite, as for embeddings: safe against kill -9 and against two runs at once. A cache that cannot be used is as good
    as none, so its own failures never end a run; `failure` says what happened.

    Attributes:
        model: Whose replies they are.
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

    def get(self, prompt: Prompt) -> Reply | None:
        """Return the reply to a prompt, None where it is not known."""
        try:
            if self._database is None:
                return None
            row = self._database.execute(
                "SELECT text, prompt_tokens, reply_tokens, seconds FROM reply WHERE key = ?", (_key(prompt),)
            ).fetchone()
            return None if row is None else Reply(str(row[0]), int(row[1]), int(row[2]), float(row[3]))
        except sqlite3.Error as error:
            self._give_up(str(error))
            return None

    def put(self, prompt: Prompt, reply: Reply) -> None:
        """Keep the reply to a prompt."""
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
    asked = [prompt.completion(), prompt.messages(), prompt.seed, TEMPERATURE, TOP_P, MAX_REPLY]
    return sha256(orjson.dumps(asked)).digest()
