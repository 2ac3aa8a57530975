"""`taugate queries`: generate queries for an unlabelled corpus, with or without a language model."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.progress import Job
from taugate.calibration.settings import CalibrationSettings
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.display import ProgressDisplay, confirm_sending
from taugate.cli.terminal.options import Appearance, AsJson, DataFolder, ModelOptions, command_of, option, part
from taugate.cli.terminal.output import print_result, printable, say, say_sentence
from taugate.data.corpus import CORPUS
from taugate.data.generation.generate import MAX_QUERIES, check_request, generate_crops
from taugate.data.generation.near_misses import generate_near_misses
from taugate.data.judgements import GENERATED
from taugate.data.lines import stored_file
from taugate.data.location import default_split
from taugate.data.queries import QUERIES, NearMissKind, sole_writer
from taugate.errors import InputError
from taugate.evidence.options import Advice
from taugate.storage.files import Json

if TYPE_CHECKING:
    from taugate.data.generation.language_model import Completion, LanguageModel, Prompt, ReplyCache
    from taugate_label.questions import QuestionPlan, Questions


_LOST_QUESTIONS = {
    "empty": "empty",
    "duplicate": "with the same words as another query",
    "example": "repeated an example",
    "not_question": "no question",
    "round_trip": "did not find their document",
}
_Price = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
    Advice("give the price of a million tokens, 0 or more"),
    Appearance("X"),
]

_Share = Annotated[float, Field(gt=0, le=1), Advice("give a share above 0 and at most 1"), Appearance("SHARE")]
_CHANGES: dict[NearMissKind, str] = {
    "name": "another name",
    "year": "another year",
    "opposite": "the opposite of a word",
}


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ModelOptions):
    """The options of questions that a language model writes."""

    examples: Path | None = option(
        None,
        'examples for the prompt, one {"document": …, "query": …} a line (default: three labelled queries '
        "of the data set, or three that are built in)",
    )
    round_trip: str | None = option(
        None,
        "drop a query whose document is not among the first K results of a search for it; off: keep it "
        f"(default: {CalibrationSettings.fields()['k'].default})",
        "K|off",
    )
    encoder: str | None = option(
        None, f"sentence-transformers model for that search (default: {DEFAULT_ENCODER})", "NAME_OR_PATH"
    )
    price_in: _Price = option(None, "price of a million tokens that the model reads")
    price_out: _Price = option(None, "price of a million tokens that the model writes")
    timeout: float | None = option(None, "longest wait for a reply of the endpoint (default: 120)", "SECONDS")
    yes: bool = option(False, "send the documents to the endpoint without asking first")

    @property
    def round_trip_k(self) -> int | None:
        """K of the search for a query's own document, or None for no search."""
        text = self.round_trip
        if text is None:
            return int(CalibrationSettings.fields()["k"].default)
        if text == "off":
            return None
        if not text.isdecimal() or not 1 <= int(text) <= 1000:
            raise InputError(f"--round-trip {text}: give a number of results from 1 to 1000, or off")
        return int(text)

    def price(self, read: int, written: int) -> float | None:
        """Return what tokens cost, or None if no price is given."""
        if self.price_in is None and self.price_out is None:
            return None
        return float(read * (self.price_in or 0) + written * (self.price_out or 0)) / 1e6


def ask_model(
    data: Path, limit: int, seed: int, options: QuestionOptions, method: str, share: float = 1.0
) -> dict[str, Json]:
    """Let a language model write questions about at most `limit` passages; returns the object that --json prints."""
    from taugate.data.generation.language_model import ReplyCache
    from taugate_label.questions import plan_questions, select, write_questions

    k = options.round_trip_k
    check_request(data, limit)
    model = options.language_model("--method", method, options.timeout)
    with sole_writer(data), ReplyCache(model) as cache:
        plan = plan_questions(data, limit, seed, options.examples, share)
        cached = plan.cached_replies(cache)
        unknown = [prompt for prompt in dict.fromkeys(plan.prompts) if prompt not in cached]
        say(f"examples in the prompt: {plan.source}; rule for questions: {plan.rule.name}")
        if cached:
            say(f"replies cached by an earlier run: {len(cached):,}; replies to request: {len(unknown):,}")
        if method == "endpoint" and unknown:
            _confirm(options, unknown)
        with ProgressDisplay() as job:
            new = _ask(unknown, len(cached), model, cache, job)
            replies = cached | new
            selected = select(plan, replies)
            if k is not None:
                _drop_lost(data, plan, selected, options.encoder or DEFAULT_ENCODER, k, job)
            write_questions(plan, selected, model.name)
    read, written = (sum(getattr(reply, side) for reply in new.values()) for side in ("prompt_tokens", "reply_tokens"))
    cost = 0.0 if method == "local" or not new else options.price(read, written)
    seconds = sum(reply.seconds for reply in replies.values()) / len(replies)
    _report(data, model, plan, selected)
    say(f"time per query: {seconds:.2f} s{f'; cost: {_amount(cost)}' if cost else ''}")
    return {
        "kept": len(selected.texts),
        "lost": asdict(selected.lost),
        "cost": cost,
        "model": model.name,
        "asked": len(new),
        "seconds_per_query": seconds,
        "tokens": {"read": read, "written": written},
        "first_words": dict(selected.first_words),
        "question_rule": plan.rule.name,
        "examples": plan.source,
    }


def _ask(
    prompts: "Sequence[Prompt]", cached: int, model: "LanguageModel", cache: "ReplyCache", job: Job
) -> "dict[Prompt, Completion]":
    """Ask the model, and return its replies to the prompts."""
    from taugate.data.generation.language_model import ask

    with job.task(f"asking {printable(model.name)}", cached + len(prompts)) as task:
        task.skip(cached)
        replies = ask(prompts, model, cache, task.advance)
    if cache.failure:
        job.report(f"warning: cannot cache the replies: {cache.failure}")
    return replies


def _drop_lost(data: Path, plan: "QuestionPlan", selected: "Questions", encoder: str, k: int, job: Job) -> None:
    """Drop the questions that do not find their own document among K results."""
    from taugate.calibration.encoding.encoder_fit import check_round_trips

    if selected.texts:
        pairs = [(text, document) for document, text in selected.texts.items()]
        selected.drop(check_round_trips(stored_file(data / CORPUS), plan.documents, pairs, encoder, k, job))


def _confirm(options: QuestionOptions, prompts: "Sequence[Prompt]") -> None:
    """Print what will be sent to the endpoint and what it costs, and ask for confirmation."""
    from taugate_label.questions import estimated_tokens

    read, written = estimated_tokens(prompts)
    cost = options.price(read, written)
    price = "" if cost is None else f", at a cost of about {_amount(cost)}"
    say(
        f"{len(prompts):,} documents, with the examples, will be sent to {printable(str(options.endpoint))}: about "
        f"{read:,} tokens to read and {written:,} to write{price}"
    )
    if not options.yes:
        confirm_sending("the documents")


def _report(data: Path, model: "LanguageModel", plan: "QuestionPlan", selected: "Questions") -> None:
    """Report how many queries were written and lost, and how they begin."""
    sampled = len(plan.prompts)
    source = f"its {sampled:,}" if sampled == plan.documents else f"{sampled:,} of its {plan.documents:,}"
    lost = selected.lost.listed(_LOST_QUESTIONS)
    say(
        f"{data} has {len(selected.texts):,} queries that {printable(model.name)} wrote about {source} passages"
        f"{'; lost: ' + lost if lost else ''}"
    )
    words = ", ".join(
        f"{printable(word)} ({count / len(selected.written):.0%})" for word, count in selected.first_words
    )
    if words:
        say(f"most frequent first words: {words}".replace("%", " %"))


def _amount(cost: float) -> str:
    """Format money; small amounts have more digits."""
    return f"{cost:.2f}" if cost >= 1 else f"{cost:.4f}"


@dataclass(frozen=True, kw_only=True)
class QueriesOptions(QuestionOptions):
    """The options of `taugate queries`: those of language models, and these."""

    data: DataFolder
    method: Literal["crop", "local", "endpoint"] = option(
        "crop",
        "crop: a span of a document's words, some of them deleted; local: questions by a language model on "
        "this machine; endpoint: questions by a language model behind an OpenAI-compatible URL",
    )
    unanswerable: bool = option(
        False,
        "instead, make questions that no document answers: labelled ones with another name or year, with a "
        "thing that no document mentions, or with the opposite of a word",
    )
    split: str | None = option(
        None, "with --unanswerable: split whose questions are changed (default: as in calibrate)"
    )
    max: int = option(
        MAX_QUERIES,
        "make queries from at most N passages, a seeded sample of the corpus; with --unanswerable, at most N questions",
    )
    per_document: _Share = option(1.0, "use at most this share of a document's chunks, so that none outweighs others")
    seed: int = option(0, "seed of every random choice")
    as_json: AsJson = False


def run(options: QueriesOptions) -> int:
    """Make queries from the documents of an unlabelled corpus.

    They go to the split generated; queries from people are not changed.
    """
    started = time.monotonic()
    if options.unanswerable:
        value = _near_misses(options)
    elif options.split is not None:
        raise InputError("--split: only --unanswerable changes questions of a split; leave it out")
    elif options.method == "crop":
        value = _crops(options)
    else:
        model_options = part(QuestionOptions, options)
        value = ask_model(options.data, options.max, options.seed, model_options, options.method, options.per_document)
    if options.as_json:
        print_result(value | {"seconds": time.monotonic() - started})
    elif options.unanswerable:
        say(f'Next: read them in {options.data / QUERIES} ("origin": "near_miss"), and remove those with an answer.')
    else:
        say(f"Next: taugate calibrate {quote(str(options.data))} --releases releases --split {GENERATED}")
    return 0


def _near_misses(options: QueriesOptions) -> dict[str, Json]:
    """Make questions that no document answers; returns the object that --json prints."""
    if options.method != "crop":
        raise InputError(f"--unanswerable: uses no model; leave --method {options.method} out")
    if options.per_document != 1:
        raise InputError("--per-document: --unanswerable changes questions, not documents; leave it out")
    part(QuestionOptions, options).refuse_model("--unanswerable uses no model; leave it out")
    split = options.split or default_split(str(options.data), say, "changing")
    near_misses = generate_near_misses(options.data, split, options.max, options.seed)
    kinds: Counter[NearMissKind] = Counter(near_miss.kind for near_miss in near_misses)
    changes = ", ".join(f"{number:,} with {_CHANGES[kind]}" for kind, number in kinds.items())
    count = len(near_misses)
    say(f"{options.data} has {count:,} questions that no document answers, made from split {split}: {changes}")
    return {"kept": count, "kinds": {str(kind): number for kind, number in kinds.items()}, "cost": 0.0}


def _crops(options: QueriesOptions) -> dict[str, Json]:
    """Make crops; returns the object that --json prints."""
    part(QuestionOptions, options).refuse_model("--method crop uses no model; add --method local or --method endpoint")
    result = generate_crops(options.data, options.max, options.seed, options.per_document)
    say_sentence(result.sentence(options.data))
    return {"kept": result.kept, "lost": asdict(result.lost), "cost": 0.0}


command = command_of(
    "queries",
    run,
    QueriesOptions,
    {OptionGroup("language models", "for --method local and --method endpoint"): QuestionOptions},
    keys=(
        *("examples", "round_trip", "encoder", "price_in", "price_out", "timeout"),
        *("split", "per_document", "seed"),
    ),
)
