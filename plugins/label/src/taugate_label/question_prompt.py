"""The prompt that asks a language model for a query about a document, with examples.

It is the vanilla prompt of InPars (Bonifacio et al. 2022), which "Unsupervised Domain Adaption for Neural Information
Retrieval" (section 3) uses too.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from taugate.data.lines import read_objects, required_text
from taugate.errors import InputError

EXAMPLES = 3  # of a prompt by default
MAX_DOCUMENT = 1000  # characters, about 256 tokens: text that the encoder cuts off cannot be searched
MAX_EXAMPLE = 400  # characters of an example's document: each prompt repeats all of them
MAX_EXAMPLES = 20  # of a file
INSTRUCTION = (
    "You read a document and write one question that a person might ask and that the document answers. "
    "Write the question in the language of the document, on one line, and nothing else. If the document has too little "
    "information for a question, write only: none."
)


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
class QuestionPrompt:
    """The prompt about one document.

    Attributes:
        seed: Seed of the model's sampling, 0 ≤ seed < 2^31; each prompt has one of its own.
    """

    examples: tuple[Example, ...]
    document: str
    seed: int

    @classmethod
    def of(cls, text: str, examples: tuple[Example, ...], seed: int) -> Self:
        """Make the prompt of a document."""
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


def read_examples(path: Path) -> tuple[Example, ...]:
    """Read the examples of a prompt from a file."""
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
