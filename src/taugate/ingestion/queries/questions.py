"""Questions that a language model writes about documents: what it is asked, and which of its replies are kept."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS, read_corpus
from taugate.ingestion.dataset.editing import NewQuery, QueryFile, replace_queries
from taugate.ingestion.dataset.judgements import (
    GENERATED,
    CorpusIds,
    Judgement,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.ingestion.dataset.lines import read_lines, stored_file
from taugate.ingestion.queries.accounting import Losses, keep_accounting
from taugate.ingestion.queries.crop import sampling_key
from taugate.ingestion.queries.generate import check_request, free_id, normalized, sample_documents
from taugate.ingestion.queries.prompt import (
    BUILT_IN,
    EXAMPLES,
    MAX_EXAMPLE,
    Example,
    Prompt,
    query_of,
    read_examples,
    shortened,
)
from taugate.ingestion.queries.question_rule import QuestionRule
from taugate.ingestion.queries.replies import LanguageModel, Reply, ReplyCache

_TRIED = 20  # labelled queries among which three with documents of their own are looked for
_BYTES_PER_TOKEN = 4  # of UTF-8: about right for English; a model may need more for other languages
_MESSAGE_TOKENS = 4  # that a chat adds around each message
_QUERY_TOKENS = 20  # of a typical reply


@dataclass(frozen=True)
class QuestionPlan:
    """What a model is to be asked.

    Attributes:
        data: Folder of the data set.
        identifiers: Of the sampled documents.
        prompts: One for each of them.
        rule: Decides what counts as a question.
        source: Where the examples come from, in words.
        documents: Passages of the corpus.
        before: The queries that the data set has.
    """

    data: Path
    identifiers: Sequence[str]
    prompts: Sequence[Prompt]
    rule: QuestionRule
    source: str
    documents: int
    before: QueryFile

    def known(self, cache: ReplyCache) -> dict[Prompt, Reply]:
        """Return the replies that an earlier run kept.

        Args:
            cache: Of the model's replies.
        """
        found = {prompt: cache.get(prompt) for prompt in self.prompts}
        return {prompt: reply for prompt, reply in found.items() if reply is not None}


def plan_questions(data: Path, most: int, seed: int, examples: Path | None) -> QuestionPlan:
    """Sample the documents that a model is asked about, and write a prompt for each.

    Args:
        data: Folder of the data set.
        most: Number of documents.
        seed: Of the sample, of the choice of examples, and of the model's sampling.
        examples: File with the examples of the prompt; None for three labelled queries that people asked, or where
            there are none, for three that come with Taugate.

    Raises:
        InputError: .
        LineError: .
    """
    check_request(data, most)
    before = QueryFile.read(data)
    if examples is not None:
        chosen, source = read_examples(examples), str(examples)
    elif chosen := _labelled_examples(data, before, seed):
        source = "labelled queries of the data set"
    else:
        chosen, source = BUILT_IN, "built in"
    sources, documents = sample_documents(data / CORPUS, most, seed)
    if not sources:
        raise InputError(f"{data / CORPUS}: holds no document; write one JSON object per line")
    texts = [f"{each.title} {each.text}" if each.title else each.text for each in sources]
    prompts = [Prompt.of(text, chosen, seed) for text in texts]
    identifiers = [each.identifier for each in sources]
    return QuestionPlan(data, identifiers, prompts, QuestionRule.for_texts(texts), source, documents, before)


def _labelled_examples(data: Path, before: QueryFile, seed: int) -> tuple[Example, ...]:
    """Return three queries that people asked, each with a document that answers it; none where there are fewer."""
    answers: dict[str, str] = {}
    for split in splits_in(data):
        qrels = stored_file(data / qrels_of(split))
        rows = read_lines(qrels)
        weighted = parse_header(qrels, next(rows, (0, ""))[1])
        for line, text in rows:
            row = parse_judgement(qrels, line, text, weighted=weighted)
            if row.judgement.grade >= 1:
                answers.setdefault(row.query, row.document)
    asked = before.texts("human")
    tried = sorted(asked.keys() & answers.keys(), key=lambda name: sampling_key(name, seed))[:_TRIED]
    wanted = {answers[name] for name in tried}
    texts = {
        each.id: each.encoded_text
        for each in (read_corpus(stored_file(data / CORPUS), CorpusIds()) if wanted else ())
        if each.id in wanted
    }
    chosen: dict[str, Example] = {}  # by document, so that no two share one
    for name in tried:
        document = answers[name]
        if document in texts and document not in chosen and len(chosen) < EXAMPLES:
            text, query = shortened(texts[document], MAX_EXAMPLE), shortened(asked[name], MAX_EXAMPLE)
            chosen[document] = Example(text, query)
    return tuple(chosen.values()) if len(chosen) == EXAMPLES else ()


def estimated_tokens(prompts: Sequence[Prompt]) -> tuple[int, int]:
    """Estimate how many tokens a model would read and write.

    Args:
        prompts: That it is asked.
    """
    read = sum(
        len(message["content"].encode()) // _BYTES_PER_TOKEN + _MESSAGE_TOKENS
        for prompt in prompts
        for message in prompt.messages()
    )
    return read, len(prompts) * _QUERY_TOKENS


def ask(
    prompts: Sequence[Prompt], model: LanguageModel, cache: ReplyCache, advance: Callable[[], None]
) -> dict[Prompt, Reply]:
    """Ask a model, and keep each reply as soon as it is there.

    Args:
        prompts: That it is asked, each once.
        model: That is asked, and closed.
        cache: Of its replies.
        advance: Called after each reply.

    Returns:
        The replies.

    Raises:
        InputError: At the first prompt that the model does not answer.
        OSError: At the first prompt that the model does not answer.
    """
    replies: dict[Prompt, Reply] = {}
    workers = ThreadPoolExecutor(model.parallel, thread_name_prefix="model")
    try:
        asked = {workers.submit(model.ask, prompt): prompt for prompt in prompts}
        for future in as_completed(asked):
            replies[asked[future]] = future.result()
            cache.put(asked[future], future.result())
            advance()
    finally:
        model.close()
        workers.shutdown(wait=False, cancel_futures=True)
    return replies


@dataclass
class Questions:
    """Questions that may be kept, and what became of the others.

    Attributes:
        texts: Of the questions, by the id of the document that each is about.
        lost: Documents that gave none.
        written: Every reply with text, by the id of its document.
    """

    texts: dict[str, str] = field(default_factory=dict)
    lost: Losses = field(default_factory=Losses)
    written: dict[str, str] = field(default_factory=dict)

    def drop(self, found: Sequence[bool]) -> None:
        """Drop the questions that fail the round trip.

        Args:
            found: For each of `texts`, whether it found its document.
        """
        for document, kept in zip(list(self.texts), found, strict=True):
            if not kept:
                del self.texts[document]
                self.lost.round_trip += 1

    @property
    def first_words(self) -> list[tuple[str, int]]:
        """The ten most frequent first words of what the model wrote, each with its count (section 6.2 of the paper)."""
        words = (text.split(maxsplit=1)[0].strip("¿,.:;?!\"'").capitalize() for text in self.written.values())
        return Counter(words).most_common(10)


def select(plan: QuestionPlan, replies: dict[Prompt, Reply]) -> Questions:
    """Take the questions from the replies, and count the losses by reason.

    Args:
        replies: To each prompt of the plan.
    """
    result = Questions()
    others = {normalized(text) for text in plan.before.texts(other_than="llm").values()}
    for identifier, prompt in zip(plan.identifiers, plan.prompts, strict=True):
        text = query_of(replies[prompt].text)
        if text:
            result.written[identifier] = text
        if not text:
            result.lost.empty += 1
        elif normalized(text) in {normalized(each.query) for each in prompt.examples}:
            result.lost.example += 1
        elif not plan.rule.holds(text):
            result.lost.not_question += 1
        elif normalized(text) in others:
            result.lost.duplicate += 1
        else:
            others.add(normalized(text))
            result.texts[identifier] = text
    return result


def write_questions(plan: QuestionPlan, questions: Questions, model: str) -> None:
    """Write questions and their judgements into the data set; those that a model wrote before are replaced.

    A question's only relevant passage is the one that it was written about. The caller holds `sole_writer`.

    Args:
        plan: That they come from.
        questions: To write.
        model: That wrote them.

    Raises:
        InputError: Where there are none.
    """
    if not questions.texts:
        lost = ", ".join(f"{count} {name}" for name, count in vars(questions.lost).items() if count)
        raise InputError(
            f"{plan.data}: no query was kept ({lost}); use a larger model, or give examples of your own with --examples"
        )
    others = plan.before.texts(other_than="llm")
    made: dict[str, NewQuery] = {}
    judgements = []
    for document, text in questions.texts.items():
        name = free_id(f"llm:{document}", others, made)
        made[name] = NewQuery(text, "llm", model)
        judgements.append(JudgementLine(name, document, Judgement(1)))
    replace_queries(plan.data, GENERATED, plan.before, made, judgements, gone=plan.before.texts("llm"))
    keep_accounting(plan.data, "llm", len(made), questions.lost, model)
