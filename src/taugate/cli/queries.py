"""`taugate queries`: generate queries for an unlabelled corpus."""

import argparse
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import orjson

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.cli.terminal.language_model import KEY, KEY_FILE, language_model
from taugate.cli.terminal.output import printable, say
from taugate.errors import InputError
from taugate.ingestion.dataset.corpus import CORPUS
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.location import default_split
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.dataset.queries import QUERIES, NearMissKind
from taugate.ingestion.queries.accounting import Losses
from taugate.ingestion.queries.generate import (
    MAX_QUERIES,
    GeneratedQueries,
    check_request,
    generate_crops,
)
from taugate.ingestion.queries.near_misses import generate_near_misses

if TYPE_CHECKING:
    from taugate.ingestion.queries.prompt import Prompt
    from taugate.ingestion.queries.questions import QuestionPlan, Questions
    from taugate.ingestion.queries.replies import Completion, LanguageModel

_CROPS_LOST = {"empty": "too short", "duplicate": "with the same words as another query"}
_QUESTIONS_LOST = {
    "empty": "empty",
    "duplicate": "with the same words as another query",
    "example": "repeated an example",
    "not_question": "no question",
    "round_trip": "did not find their document",
}
_CHANGES: dict[NearMissKind, str] = {
    "name": "another name",
    "year": "another year",
    "opposite": "the opposite of a word",
}
# Options of language models; --method crop uses none.
_OF_MODELS = ("endpoint", "model", "examples", "price_in", "price_out", "encoder", "round_trip", "timeout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate queries` to its parser."""
    parser.description = (
        "Make queries from the documents of an unlabelled corpus. They go to the split generated; queries from people "
        "are not changed."
    )
    parser.add_argument("data", metavar="DATA", type=Path, help="folder of the data set, with corpus.jsonl")
    parser.add_argument(
        "--method",
        choices=["crop", "local", "endpoint"],
        default="crop",
        help="crop: a span of a document's words, some of them deleted; local: questions by a language model on this "
        "machine; endpoint: questions by a language model behind an OpenAI-compatible URL (default: crop)",
    )
    parser.add_argument(
        "--unanswerable",
        action="store_true",
        help="instead, make questions that no document answers: labelled ones with another name or year, with a thing "
        "that no document mentions, or with the opposite of a word",
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="with --unanswerable: split whose questions are changed (default: as in calibrate)",
    )
    parser.add_argument(
        "--max",
        metavar="N",
        type=int,
        default=MAX_QUERIES,
        help="make queries from at most N passages, a seeded sample of the corpus; with --unanswerable, at most N "
        f"questions (default: {MAX_QUERIES})",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of every random choice (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group = parser.add_argument_group("language models", "for --method local and --method endpoint")
    group.add_argument(
        "--endpoint",
        metavar="URL",
        help="base URL of an OpenAI-compatible server, without /chat/completions; the key is read from "
        f"{KEY} or from the file named by {KEY_FILE}",
    )
    group.add_argument(
        "--model",
        metavar="M",
        help="endpoint: name of the model there; local: path of a GGUF file (default: SmolLM2-135M-Instruct)",
    )
    group.add_argument(
        "--examples",
        metavar="FILE",
        type=Path,
        help='examples for the prompt, one {"document": …, "query": …} a line (default: three labelled queries of the '
        "data set, or three that are built in)",
    )
    group.add_argument(
        "--round-trip",
        metavar="K|off",
        help="drop a query whose document is not among the first K results of a search for it; off: keep it (default: "
        f"{CalibrationSettings.fields()['k'].default})",
    )
    group.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        help=f"sentence-transformers model for that search (default: {DEFAULT_ENCODER})",
    )
    group.add_argument("--price-in", metavar="X", type=float, help="price of a million tokens that the model reads")
    group.add_argument("--price-out", metavar="X", type=float, help="price of a million tokens that the model writes")
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="longest wait for a reply of the endpoint (default: 120)"
    )
    group.add_argument("--yes", action="store_true", help="send the documents to the endpoint without asking first")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the queries, and report the result; returns the exit code."""
    started = time.monotonic()
    if arguments.unanswerable:
        value = _near_misses(arguments)
    elif arguments.split is not None:
        raise InputError("--split: only --unanswerable changes questions of a split; leave it out")
    else:
        value = _crops(arguments) if arguments.method == "crop" else _questions(arguments)
    if arguments.json:
        value["seconds"] = time.monotonic() - started
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
    elif arguments.unanswerable:
        say(f'Next: read them in {arguments.data / QUERIES} ("origin": "near_miss"), and remove those with an answer.')
    else:
        say(f"Next: taugate calibrate {quote(str(arguments.data))} --releases releases --split {GENERATED}")
    return 0


def _near_misses(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make questions that no document answers; returns the object that --json prints."""
    if arguments.method != "crop":
        raise InputError(f"--unanswerable: uses no model; leave --method {arguments.method} out")
    _refuse_options_of_models(arguments, "--unanswerable uses no model; leave it out")
    split = arguments.split or default_split(str(arguments.data), say, "changing")
    questions = generate_near_misses(arguments.data, split, arguments.max, arguments.seed)
    kinds: Counter[NearMissKind] = Counter(near_miss.kind for near_miss in questions)
    listed = ", ".join(f"{count:,} with {_CHANGES[kind]}" for kind, count in kinds.items())
    say(
        f"{arguments.data} has {len(questions):,} questions that no document answers, made from split {split}: {listed}"
    )
    return {"kept": len(questions), "kinds": dict(kinds), "seconds": 0.0, "cost": 0.0}


def _refuse_options_of_models(arguments: argparse.Namespace, remedy: str) -> None:
    """Check that no option of language models is given.

    Args:
        arguments: Parsed options.
        remedy: End of the message.

    Raises:
        InputError: If one is.
    """
    for name in _OF_MODELS:
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}: {remedy}")


def _crops(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make crops; returns the object that --json prints."""
    _refuse_options_of_models(arguments, "--method crop uses no model; add --method local or --method endpoint")
    result = generate_crops(arguments.data, arguments.max, arguments.seed)
    say(_summary(arguments.data, result))
    return {"kept": result.kept, "lost": asdict(result.lost), "seconds": 0.0, "cost": 0.0}


def _summary(data: Path, result: GeneratedQueries) -> str:
    lost = _listed(result.lost, _CROPS_LOST)
    sampled = result.kept + sum(asdict(result.lost).values())
    source = f"its {sampled:,}" if sampled == result.documents else f"{sampled:,} of its {result.documents:,}"
    return (
        f"{data} has {result.kept:,} queries cropped from {source} passages"
        f"{'; passages without a query: ' + lost if lost else ''}"
    )


def _listed(lost: Losses, reasons: dict[str, str]) -> str:
    return ", ".join(f"{count} {reasons[reason]}" for reason, count in asdict(lost).items() if count)


def _questions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let a language model write questions; returns the object that --json prints."""
    from taugate.calibration.encoding.round_trip import check_round_trips
    from taugate.cli.terminal.display import ProgressDisplay
    from taugate.ingestion.queries.questions import ask, plan_questions, select, write_questions
    from taugate.ingestion.queries.replies import ReplyCache

    k = _round_trip(arguments.round_trip)
    check_request(arguments.data, arguments.max)
    model = _model(arguments)
    with sole_writer(arguments.data), ReplyCache(model) as cache:
        plan = plan_questions(arguments.data, arguments.max, arguments.seed, arguments.examples)
        replies = plan.cached_replies(cache)
        unknown = [prompt for prompt in dict.fromkeys(plan.prompts) if prompt not in replies]
        say(f"examples in the prompt: {plan.source}; rule for questions: {plan.rule.name}")
        if replies:
            say(f"replies cached by an earlier run: {len(replies):,}; replies to request: {len(unknown):,}")
        if arguments.method == "endpoint" and unknown:
            _confirm(arguments, unknown)
        with ProgressDisplay() as job:
            with job.task(f"asking {printable(model.name)}", len(replies) + len(unknown)) as task:
                task.skip(len(replies))
                new = ask(unknown, model, cache, task.advance)
                replies |= new
            if cache.failure:
                job.report(f"warning: cannot cache the replies: {cache.failure}")
            questions = select(plan, replies)
            if k is not None and questions.texts:
                pairs = [(text, document) for document, text in questions.texts.items()]
                corpus = stored_file(arguments.data / CORPUS)
                encoder = arguments.encoder or DEFAULT_ENCODER
                questions.drop(check_round_trips(corpus, plan.documents, pairs, encoder, k, job))
            write_questions(plan, questions, model.name)
    cost = _cost(arguments, new)
    seconds = sum(reply.seconds for reply in replies.values()) / len(replies)
    _say_questions(arguments, model, plan, questions, (seconds, cost))
    return {
        "kept": len(questions.texts),
        "lost": asdict(questions.lost),
        "seconds": 0.0,
        "cost": cost,
        "model": model.name,
        "asked": len(new),
        "seconds_per_query": seconds,
        "tokens": {"read": sum(reply.prompt_tokens for reply in new.values()), "written": _written(new)},
        "first_words": dict(questions.first_words),
        "question_rule": plan.rule.name,
        "examples": plan.source,
    }


def _round_trip(text: str | None) -> int | None:
    """Parse --round-trip: K, or None for off.

    Raises:
        InputError: If the text is neither a number from 1 to 1000 nor "off".
    """
    if text is None:
        return int(CalibrationSettings.fields()["k"].default)
    if text == "off":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise InputError(f"--round-trip {text}: give a number of results from 1 to 1000, or off")
    return int(text)


def _model(arguments: argparse.Namespace) -> "LanguageModel":
    """Return the requested model.

    Raises:
        InputError: If options are missing or a price is negative.
        ModuleNotFoundError: If the extra `generate` is not installed.
    """
    for name in ("price_in", "price_out"):
        price = getattr(arguments, name)
        if price is not None and not 0 <= price < float("inf"):
            raise InputError(f"--{name.replace('_', '-')} {price}: give the price of a million tokens, 0 or more")
    return language_model("--method", arguments.method, arguments.endpoint, arguments.model, arguments.timeout)


def _confirm(arguments: argparse.Namespace, prompts: list["Prompt"]) -> None:
    """Print what will be sent to the endpoint and what it costs, and ask for confirmation.

    Raises:
        InputError: If the user does not confirm.
    """
    from taugate.ingestion.queries.questions import estimated_tokens

    read, written = estimated_tokens(prompts)
    cost = _price(arguments, read, written)
    price = "" if cost is None else f", at a cost of about {_amount(cost)}"
    say(
        f"{len(prompts):,} documents, with the examples, will be sent to {printable(arguments.endpoint)}: about "
        f"{read:,} tokens to read and {written:,} to write{price}"
    )
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise InputError("nothing was sent: add --yes to send the documents to the endpoint")
    sys.stderr.write("Send them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
        raise InputError("nothing was sent, and nothing was changed")


def _price(arguments: argparse.Namespace, read: int, written: int) -> float | None:
    """Return what tokens cost, or None if no price is given."""
    if arguments.price_in is None and arguments.price_out is None:
        return None
    return float(read * (arguments.price_in or 0) + written * (arguments.price_out or 0)) / 1e6


def _amount(cost: float) -> str:
    """Format money; small amounts have more digits."""
    return f"{cost:.2f}" if cost >= 1 else f"{cost:.4f}"


def _cost(arguments: argparse.Namespace, replies: dict["Prompt", "Completion"]) -> float | None:
    """Return what the replies of this run cost, or None if no price is given; a local model costs nothing."""
    if arguments.method == "local" or not replies:
        return 0.0
    return _price(arguments, sum(reply.prompt_tokens for reply in replies.values()), _written(replies))


def _written(replies: dict["Prompt", "Completion"]) -> int:
    return sum(reply.reply_tokens for reply in replies.values())


def _say_questions(
    arguments: argparse.Namespace,
    model: "LanguageModel",
    plan: "QuestionPlan",
    questions: "Questions",
    spent: tuple[float, float | None],
) -> None:
    """Report how many queries were written and lost, and what was spent: seconds per reply, and the cost."""
    sampled = len(plan.prompts)
    source = f"its {sampled:,}" if sampled == plan.documents else f"{sampled:,} of its {plan.documents:,}"
    lost = _listed(questions.lost, _QUESTIONS_LOST)
    say(
        f"{arguments.data} has {len(questions.texts):,} queries that {printable(model.name)} wrote about {source} "
        f"passages{'; lost: ' + lost if lost else ''}"
    )
    words = ", ".join(
        f"{printable(word)} ({count / len(questions.written):.0%})" for word, count in questions.first_words
    )
    if words:
        say(f"most frequent first words: {words}".replace("%", " %"))
    seconds, cost = spent
    say(f"time per query: {seconds:.2f} s{f'; cost: {_amount(cost)}' if cost else ''}")
