"""Questions that a language model writes about documents: prompts, and selection of replies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from taugate.data.lines import read_lines, stored_file
from taugate.data.queries import DatasetQuery, QueryFile, replace_queries
from taugate.data.questions import QuestionRule
from taugate.errors import InputError
from taugate_label.question_prompt import (
    BUILT_IN,
    EXAMPLES,
    MAX_EXAMPLE,
    Example,
    QuestionPrompt,
    on_one_line,
    read_examples,
)

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
