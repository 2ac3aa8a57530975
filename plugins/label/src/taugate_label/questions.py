"""Questions that a language model writes about documents: prompts, and selection of replies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from taugate.data.corpus import CORPUS, read_corpus
from taugate.data.generation.generate import (
    Losses,
    check_request,
    free_id,
    keep_accounting,
    normalized,
    sample_documents,
    sampling_key,
)
from taugate.data.generation.language_model import Completion, Prompt, ReplyCache, query_in
from taugate.data.judgements import (
    GENERATED,
    CorpusIds,
    Judgement,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.data.lines import read_lines, read_objects, required_text, stored_file
from taugate.data.queries import DatasetQuery, QueryFile, replace_queries
from taugate.data.questions import QuestionRule
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


_TRIED = 20  # labelled queries to choose three examples with distinct documents from
_BYTES_PER_TOKEN = 4  # of UTF-8: about right for English; a model may need more for other languages
_MESSAGE_TOKENS = 4  # tokens that a chat adds around each message
_QUERY_TOKENS = 20  # of a typical reply


@dataclass(frozen=True)
class QuestionPlan:
    """The prompts of a run."""

    data: Path
    identifiers: Sequence[str]
    prompts: Sequence[QuestionPrompt]
    rule: QuestionRule
    source: str
    documents: int
    before: QueryFile

    def cached_replies(self, cache: ReplyCache) -> dict[Prompt, Completion]:
        """Return the replies cached by an earlier run."""
        replies = {prompt: cache.get(prompt) for prompt in self.prompts}
        return {prompt: reply for prompt, reply in replies.items() if reply is not None}


def plan_questions(
    data: Path, max_documents: int, seed: int, examples: Path | None, share: float = 1.0
) -> QuestionPlan:
    """Sample the documents that a model is asked about, and write a prompt for each.

    Args:
        seed: Seed of the sample, of the choice of examples, and of the model's sampling.
        examples: File with the examples of the prompt; None for three labelled queries by people or, with fewer, for
            three that come with Taugate.
    """
    check_request(data, max_documents)
    before = QueryFile.read(data)
    if examples is not None:
        chosen, source = read_examples(examples), str(examples)
    elif chosen := _labelled_examples(data, before, seed):
        source = "labelled queries of the data set"
    else:
        chosen, source = BUILT_IN, "built in"
    sampled, documents = sample_documents(data / CORPUS, max_documents, seed, share)
    if not sampled:
        raise InputError(f"{data / CORPUS}: holds no document; write one JSON object per line")
    texts = [f"{source.title} {source.text}" if source.title else source.text for source in sampled]
    prompts = [QuestionPrompt.of(text, chosen, seed) for text in texts]
    identifiers = [source.identifier for source in sampled]
    return QuestionPlan(data, identifiers, prompts, QuestionRule.for_texts(texts), source, documents, before)


def _labelled_examples(data: Path, before: QueryFile, seed: int) -> tuple[Example, ...]:
    """Return three queries by people, each with a document that answers it; none if there are fewer."""
    answers: dict[str, str] = {}
    for split in splits_in(data):
        qrels = stored_file(data / qrels_of(split))
        rows = read_lines(qrels)
        weighted = parse_header(qrels, next(rows, (0, ""))[1])
        for line, text in rows:
            row = parse_judgement(qrels, line, text, weighted=weighted)
            if row.judgement.grade >= 1:
                answers.setdefault(row.query, row.document)
    human_queries = before.texts("human")
    tried = sorted(human_queries.keys() & answers.keys(), key=lambda name: sampling_key(name, seed))[:_TRIED]
    needed = {answers[name] for name in tried}
    texts = {
        document.id: document.encoded_text
        for document in (read_corpus(stored_file(data / CORPUS), CorpusIds()) if needed else ())
        if document.id in needed
    }
    chosen: dict[str, Example] = {}  # by document, so that no two share one
    for name in tried:
        document = answers[name]
        if document in texts and document not in chosen and len(chosen) < EXAMPLES:
            text, query = on_one_line(texts[document], MAX_EXAMPLE), on_one_line(human_queries[name], MAX_EXAMPLE)
            chosen[document] = Example(text, query)
    return tuple(chosen.values()) if len(chosen) == EXAMPLES else ()


def estimated_tokens(prompts: Sequence[Prompt]) -> tuple[int, int]:
    """Estimate the number of tokens that a model reads and writes for some prompts."""
    read = sum(
        len(message["content"].encode()) // _BYTES_PER_TOKEN + _MESSAGE_TOKENS
        for prompt in prompts
        for message in prompt.messages()
    )
    return read, len(prompts) * _QUERY_TOKENS


@dataclass
class Questions:
    """The selected questions, and the reasons for rejecting the others."""

    texts: dict[str, str] = field(default_factory=dict)
    lost: Losses = field(default_factory=Losses)
    written: dict[str, str] = field(default_factory=dict)

    def drop(self, results: Sequence[bool]) -> None:
        """Drop the questions that fail the round trip."""
        for document, kept in zip(list(self.texts), results, strict=True):
            if not kept:
                del self.texts[document]
                self.lost.round_trip += 1

    @property
    def first_words(self) -> list[tuple[str, int]]:
        """The ten most frequent first words of the model's texts, each with its count (section 6.2 of the paper)."""
        words = (text.split(maxsplit=1)[0].strip("¿,.:;?!\"'").capitalize() for text in self.written.values())
        return Counter(words).most_common(10)


def select(plan: QuestionPlan, replies: dict[Prompt, Completion]) -> Questions:
    """Select the questions from the replies, and count the losses by reason."""
    result = Questions()
    existing = {normalized(text) for text in plan.before.texts(other_than="llm").values()}
    for identifier, prompt in zip(plan.identifiers, plan.prompts, strict=True):
        text = query_in(replies[prompt].text)
        if text:
            result.written[identifier] = text
        if not text:
            result.lost.empty += 1
        elif normalized(text) in {normalized(example.query) for example in prompt.examples}:
            result.lost.example += 1
        elif not plan.rule.holds(text):
            result.lost.not_question += 1
        elif normalized(text) in existing:
            result.lost.duplicate += 1
        else:
            existing.add(normalized(text))
            result.texts[identifier] = text
    return result


def write_questions(plan: QuestionPlan, questions: Questions, model: str) -> None:
    """Write questions and their judgements into the data set; questions of an earlier run are replaced.

    A question's only relevant passage is the one that it was written about. The caller holds `sole_writer`.
    """
    if not questions.texts:
        lost = ", ".join(f"{count} {name}" for name, count in vars(questions.lost).items() if count)
        raise InputError(
            f"{plan.data}: no query was kept ({lost}); use a larger model, or give examples of your own with --examples"
        )
    existing = plan.before.texts(other_than="llm")
    added: dict[str, DatasetQuery] = {}
    judgements = []
    for document, text in questions.texts.items():
        name = free_id(f"llm:{document}", existing, added)
        added[name] = DatasetQuery(text, "llm", model)
        judgements.append(JudgementLine(name, document, Judgement(1)))
    replace_queries(plan.data, GENERATED, plan.before, added, judgements, removed=plan.before.texts("llm"))
    keep_accounting(plan.data, "llm", len(added), questions.lost, model)
