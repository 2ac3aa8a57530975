"""The prompt that asks a language model for a query, and a cache of its replies, so that a run can be continued.

It is the vanilla prompt of InPars (Bonifacio et al. 2022), which "Unsupervised Domain Adaption for Neural Information
Retrieval" (section 3) uses too.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import orjson

from taugate.data.lines import read_objects, required_text
from taugate.errors import InputError
from taugate.storage.folders import cache_folder
from taugate.storage.sqlite_cache import SqliteCache

EXAMPLES = 3  # of a prompt by default
MAX_DOCUMENT = 1000  # characters, about 256 tokens: text that the encoder cuts off cannot be searched
MAX_EXAMPLE = 400  # characters of an example's document: each prompt repeats all of them
MAX_EXAMPLES = 20  # of a file
MAX_REPLY = 64  # tokens: a longer reply is no question
# Sampling as in section 3 and appendix A.1 of the paper.
TEMPERATURE = 1.0
TOP_P = 0.9
INSTRUCTION = (
    "You read a document and write one question that a person might ask and that the document answers. "
    "Write the question in the language of the document, on one line, and nothing else. If the document has too little "
    "information for a question, write only: none."
)
_NOTHING = "none"  # the reply that INSTRUCTION asks for in that case, as the diversity paper's prompt does (§3.2.1)


class Example(NamedTuple):
    """An example of the prompt: the text of a document, and a query that it answers."""

    document: str
    query: str


# Used if the data set has too few labelled queries and the user names no file of examples.
BUILT_IN = (
    Example(
        "A sourdough starter is a mixture of flour and water in which wild yeast lives. Keep it in the refrigerator if "
        "you bake once a week or less, and feed it every seven days. At room temperature it has to be fed every day.",
        "How often do I have to feed a sourdough starter?",
    ),
    Example(
        "The common swift spends most of its life in the air. It eats, drinks and even sleeps on the wing, and lands "
        "only to breed. Young swifts may fly for two or three years before they land for the first time.",
        "Which bird sleeps while it flies?",
    ),
    Example(
        "Passengers may take one bicycle each on regional trains outside of the rush hour. A bicycle ticket costs 4.50 "
        "and is valid all day. On express trains, places for bicycles have to be reserved.",
        "Can I take my bicycle on a train, and what does it cost?",
    ),
)


@dataclass(frozen=True)
class Prompt:
    """The prompt about one document.

    Attributes:
        examples: Examples in front of the document.
        document: Text of the document, cut to MAX_DOCUMENT characters.
        seed: Seed of the model's sampling, 0 ≤ seed < 2^31; each prompt has one of its own.
    """

    examples: tuple[Example, ...]
    document: str
    seed: int

    @classmethod
    def of(cls, text: str, examples: tuple[Example, ...], seed: int) -> "Prompt":
        """Make the prompt of a document.

        Args:
            text: Text of the document.
            examples: Examples in front of the document.
            seed: Seed of the run.
        """
        document = on_one_line(text, MAX_DOCUMENT)
        digest = sha256(orjson.dumps([seed, document, *map(list, examples)])).digest()
        return cls(examples, document, int.from_bytes(digest[:4], "big") >> 1)

    def completion(self) -> str:
        """Return the prompt as text that a model continues with the query."""
        parts = [
            f"Example {number}:\nDocument: {document}\nRelevant Query: {query}\n\n"
            for number, (document, query) in enumerate(self.examples, 1)
        ]
        return f"{''.join(parts)}Example {len(parts) + 1}:\nDocument: {self.document}\nRelevant Query:"

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt as messages of a chat, in which the assistant wrote the queries of the examples."""
        messages = [{"role": "system", "content": INSTRUCTION}]
        for document, query in self.examples:
            messages.append({"role": "user", "content": f"Document: {document}"})
            messages.append({"role": "assistant", "content": query})
        return [*messages, {"role": "user", "content": f"Document: {self.document}"}]


def on_one_line(text: str, length: int) -> str:
    """Return a text on one line, cut between two words if it is longer than `length` characters."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    cut = line[: length + 1].rpartition(" ")[0]
    return cut if len(cut) > length // 2 else line[:length]  # a language without spaces is cut anywhere


def query_of(reply: str) -> str:
    """Return the query in a reply: the first line with text, without a label, a number or quotes around it.

    Args:
        reply: Text written by the model.

    Returns:
        The query, or "" if there is no such line.
    """
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


def read_examples(path: Path) -> tuple[Example, ...]:
    """Read the examples of a prompt from a file.

    Args:
        path: A file in JSON Lines, each line {"document": …, "query": …}.

    Raises:
        InputError: If the file cannot be read or holds too few or too many examples; LineError if a line is invalid.
    """
    examples = tuple(
        Example(
            on_one_line(required_text(path, line, record, "document"), MAX_DOCUMENT),
            on_one_line(required_text(path, line, record, "query"), MAX_EXAMPLE),
        )
        for line, record in read_objects(path, 'write one {"document": …, "query": …} a line')
    )
    if not 1 <= len(examples) <= MAX_EXAMPLES:
        raise InputError(f"{path}: holds {len(examples)} examples; give 1 to {MAX_EXAMPLES}")
    return examples


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


def ask(
    prompts: Sequence[Prompt], model: LanguageModel, cache: ReplyCache, advance: Callable[[], None]
) -> dict[Prompt, Completion]:
    """Ask a model, and cache each reply at once.

    Args:
        prompts: Distinct prompts.
        model: Model to ask; it is closed at the end.
        cache: Cache of the model's replies.
        advance: Called after each reply.

    Returns:
        The reply to each prompt.

    Raises:
        InputError: If the model cannot be used.
        OSError: If the model does not respond.
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
