"""`taugate calibrate`: settings from the command line, progress to stderr, the result to stdout."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from taugate.calibration.comparison.publish import publish, unfit
from taugate.calibration.comparison.words import PROVISIONAL, report
from taugate.calibration.comparison.words import as_json as promotion_json
from taugate.calibration.encoding.source import DEFAULT_ENCODER, RequestedEncoder
from taugate.calibration.settings.rules import AbstentionRule, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings, GateSettings
from taugate.cli.terminal.options import add_option, add_signing_option, lexical_weight
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.parser import show_in_help
from taugate.cli.terminal.promotion_rule import add_promotion_options, promotion_from_arguments
from taugate.cli.terminal.summary import CalibratedRelease, summary
from taugate.registry.catalog import pointed_id
from taugate.retrieval.release.layout import CURRENT

# What most calibrations decide by; --help shows these, --help-all every option.
_COMMON = (
    "releases", "k", "encoder", "max_loss", "max_answered", "precision", "max_accuracy_drop", "no_promote",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate calibrate`; its options are made from the fields of CalibrationSettings."""
    parser.description = "Measure a labelled data set, choose the threshold, and write and promote a release."
    show_in_help(parser, _COMMON)
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument(
        "--releases", metavar="DIR", type=Path, required=True, default=argparse.SUPPRESS, help="the releases directory"
    )
    fields = CalibrationSettings.fields()
    add_option(parser, fields, "split")
    add_option(parser, fields, "labels", omit_default=True, metavar="SPLITS", type=_splits)
    for name in ("drawn", "k", "bootstraps", "sample_size", "seed"):
        add_option(parser, fields, name)
    add_option(parser, fields, "holdout", omit_default=True)
    add_option(parser, fields, "overlap_percentile")
    _add_threshold_options(parser)
    _add_gate_options(parser)
    _add_engine_options(parser)
    add_promotion_options(parser)
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=argparse.SUPPRESS,  # an explicit encoder may differ from the current release's
        help=f"sentence-transformers model (default: {DEFAULT_ENCODER})",
    )
    parser.add_argument("--json", action="store_true", help="print the release and its manifest as one JSON object")
    add_signing_option(parser)
    parser.set_defaults(run=run)


def _add_threshold_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the threshold. Defaults are left out: they depend on the other options."""
    group = parser.add_argument_group(
        "threshold", "by default, the papers' rule; with --max-loss alone, a certified threshold"
    )
    rule, abstention = ThresholdRule.fields(), AbstentionRule.fields()
    for name in ("method", "policy"):
        add_option(group, rule, name)
    add_option(group, rule, "max_loss", omit_default=True, metavar="X[,X…]", type=_shares)
    add_option(group, rule, "metric")
    add_option(group, rule, "guarantee", omit_default=True)
    add_option(group, rule, "confidence", omit_default=True, metavar="P")
    add_option(group, rule, "max_empty", metavar="X")
    add_option(group, rule, "strata", metavar="metadata.FIELD")
    add_option(group, rule, "count_at_most", metavar="N|auto", type=_cap, choices=None)
    add_option(group, abstention, "max_answered", metavar="X")
    group.add_argument(
        "--no-refusal",
        action="store_true",
        help="refuse no query as a whole (default: a query is refused if its best similarity is below ρ, which refuses "
        "questions about other subjects; not with --tau or --method bootstrap)",
    )
    add_option(group, rule, "tau", metavar="X")


def _splits(text: str) -> tuple[str, ...]:
    """Parse names with commas between them."""
    return tuple(text.split(","))


def _cap(text: str) -> int | str:
    """Parse a number of queries or "auto"; argparse shows the message of the error."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}": give a whole number of 1 or more, or auto') from None


def _shares(text: str) -> list[float]:
    """Parse numbers with commas between them; argparse shows the message of the error."""
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}": give a share such as 0.01, or several such as 0.01,0.02') from None


def _add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Add the cheaper alternatives to exact search, and how much they may lose."""
    group = parser.add_argument_group("gate", "a cheaper option is used if it is shown to lose less than a margin")
    candidates, gate = CandidateSettings.fields(), GateSettings.fields()
    add_option(group, candidates, "lexical", metavar="off|auto|W", type=lexical_weight, choices=None)
    add_option(group, candidates, "projection")
    add_option(group, candidates, "retention", metavar="R")
    add_option(group, candidates, "precision")
    add_option(group, candidates, "index")
    add_option(group, gate, "margin", metavar="X")
    add_option(group, gate, "confidence", option="--gate-confidence", metavar="P")


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the engine that stores vectors and documents, and the source of the vectors."""
    group = parser.add_argument_group("engine", "an external store for a corpus that does not fit on one machine")
    fields = CalibrationSettings.fields()
    add_option(group, fields, "engine")
    add_option(group, fields, "embeddings", metavar="DIR_OR_URL")


def run(arguments: argparse.Namespace, *, with_next_steps: bool = True) -> int:
    """Calibrate, promote, and report.

    Args:
        arguments: The parsed command line.
        with_next_steps: Whether to end with the path of the report and the next step.

    Returns:
        The exit code.

    Raises:
        TaugateError: If no release can be written.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    explicit = "encoder" in arguments
    request = promotion_from_arguments(arguments, new_encoder=explicit)
    settings = CalibrationSettings.from_options(vars(arguments))
    encoder = RequestedEncoder(getattr(arguments, "encoder", DEFAULT_ENCODER), explicit or not request.requested)
    with ProgressDisplay() as job:
        with job.task("starting"):
            from taugate.calibration.job.calibration import (
                calibrate,  # loads scikit-learn and more, which takes seconds
            )
            from taugate.calibration.report.terminal import table, times

            request.check(arguments.releases, settings.k)
        manifest = calibrate(arguments.data, arguments.releases, encoder, settings, job)
        path = arguments.releases / manifest.release_id
        job.report(table(manifest))
        job.report(times(job))
        previous = pointed_id(arguments.releases, CURRENT)
        with job.task("promoting the release"):
            ending = publish(path, request, unfit(manifest, settings.rule), report=job.report)
        if ending.provisional and ending.decision is None:
            job.report(PROVISIONAL)
    release = CalibratedRelease(manifest, path, request, ending, previous)
    return _report(release, as_json=arguments.json, with_next_steps=with_next_steps)


def _report(release: CalibratedRelease, *, as_json: bool, with_next_steps: bool) -> int:
    """Print the release to stdout and how the command ended to stderr; returns the exit code."""
    ending, code, errors = release.ending, release.ending.code, []
    if ending.decision is not None:
        lines: list[str] = []
        code = report(ending.decision, lines.append)
        if code:
            errors = [lines.pop()]
        for line in lines:
            say(line)
    elif ending.message is not None:
        errors = [f"taugate: {ending.sentences}"]
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(_as_json(release)) + b"\n")
    else:
        sys.stdout.write(f"{release.path}\n")
    sys.stdout.flush()
    say("")
    say_labelled(summary(release, with_next_steps=with_next_steps))
    for line in errors:
        say(line)
    return code


def _as_json(release: CalibratedRelease) -> dict[str, Any]:
    """Return the object that --json prints."""
    manifest, rule = release.manifest, release.request.rule
    result = {"release": manifest.release_id, "path": str(release.path), "manifest": manifest.model_dump()}
    return result if rule is None else result | {"promotion": promotion_json(rule, release.ending)}
