"""`taugate queries`: generate queries for an unlabelled corpus."""

import time
from collections import Counter
from dataclasses import asdict
from shlex import quote
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice
from taugate.cli.questions import QuestionOptions, ask_model, listed_losses
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.options import Appearance, AsJson, DataFolder, command_of, option, part
from taugate.cli.terminal.output import print_result, say, say_sentence
from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.ingestion.dataset.location import default_split
from taugate.ingestion.dataset.queries import QUERIES, NearMissKind
from taugate.ingestion.queries.generate import MAX_QUERIES, generate_crops
from taugate.ingestion.queries.near_misses import generate_near_misses
from taugate.storage.json_values import Json

_Share = Annotated[float, Field(gt=0, le=1), Advice("give a share above 0 and at most 1"), Appearance("SHARE")]
_LOST = {"empty": "too short", "duplicate": "with the same words as another query"}
_CHANGES: dict[NearMissKind, str] = {
    "name": "another name",
    "year": "another year",
    "opposite": "the opposite of a word",
}


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
        value = make_crops(options)
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


def make_crops(options: QueriesOptions) -> dict[str, Json]:
    """Make crops; returns the object that --json prints."""
    part(QuestionOptions, options).refuse_model("--method crop uses no model; add --method local or --method endpoint")
    result = generate_crops(options.data, options.max, options.seed, options.per_document)
    lost = listed_losses(result.lost, _LOST)
    sampled = result.kept + sum(asdict(result.lost).values())
    source = f"its {sampled:,}" if sampled == result.documents else f"{sampled:,} of its {result.documents:,}"
    say_sentence(
        f"{options.data} has {result.kept:,} queries cropped from {source} passages"
        f"{'; passages without a query: ' + lost if lost else ''}"
    )
    return {"kept": result.kept, "lost": asdict(result.lost), "cost": 0.0}


command = command_of(
    "queries",
    run,
    QueriesOptions,
    {OptionGroup("language models", "for --method local and --method endpoint"): QuestionOptions},
)
