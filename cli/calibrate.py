"""`taugate calibrate`: settings from the command line, progress to stderr, the result to stdout."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from taugate.calibration.comparison.words import as_json, report, unfit
from taugate.calibration.encoding.source import DEFAULT_ENCODER, AskedEncoder
from taugate.calibration.progress import Stopwatch
from taugate.calibration.report.terminal import table, times
from taugate.calibration.settings.rules import AbstentionRule, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings, GateSettings
from taugate.cli.terminal.options import add_option
from taugate.cli.terminal.output import say
from taugate.cli.terminal.promotion_rule import PromotionRequest, add_promotion_options
from taugate.registry.signing import sign, signing_key


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `calibrate`; its options are made from the fields of CalibrationSettings.

    commands: the subparsers of `taugate`.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="measure a labelled data set, choose the threshold, write and promote a release",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument(
        "--releases", metavar="DIR", type=Path, required=True, default=argparse.SUPPRESS, help="where releases are kept"
    )
    for name in ("split", "k", "bootstraps", "sample_size", "seed", "holdout", "overlap_percentile"):
        add_option(parser, CalibrationSettings.fields(), name)
    _add_threshold_options(parser)
    _add_gate_options(parser)
    add_promotion_options(parser)
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=argparse.SUPPRESS,  # one that is named may differ from the current release's
        help=f"sentence-transformers model (default: {DEFAULT_ENCODER})",
    )
    parser.add_argument("--json", action="store_true", help="print the release and its manifest as one JSON object")
    parser.add_argument(
        "--sign-with",
        metavar="PEM",
        type=Path,
        default=argparse.SUPPRESS,
        help="Ed25519 private key to sign the release with",
    )
    parser.set_defaults(run=run)


def _add_threshold_options(parser: argparse.ArgumentParser) -> None:
    """Add how the threshold is chosen. Defaults are left out, as what is not given follows from what is."""
    group = parser.add_argument_group(
        "threshold", "without any of these: the papers' rule; --max-loss alone: a certified cut"
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
    add_option(group, abstention, "max_answered", metavar="X")


def _shares(text: str) -> list[float]:
    """Parse numbers with commas between them; argparse shows the message of the error."""
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}": give a share such as 0.01, or several such as 0.01,0.02') from None


def _add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Add what is tried in place of exact search, and what it must not lose."""
    group = parser.add_argument_group("gate", "what is cheaper is used where it is shown to lose less than a margin")
    candidates, gate = CandidateSettings.fields(), GateSettings.fields()
    add_option(group, candidates, "projection")
    add_option(group, candidates, "retention", metavar="R")
    add_option(group, candidates, "precision")
    add_option(group, candidates, "index")
    add_option(group, gate, "margin", metavar="X")
    add_option(group, gate, "confidence", option="--gate-confidence", metavar="P")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, promote, and report.

    arguments: the parsed command line. Returns the exit code. Raises TaugateError for what keeps a release from being
    written.
    """
    # What this needs comes with the extra `calibration`, which the other subcommands do without.
    from taugate.calibration.job.job import calibrate

    promotion = PromotionRequest.from_arguments(arguments)
    key = signing_key(getattr(arguments, "sign_with", None), promoting=promotion.wanted)
    watch = Stopwatch()
    settings = CalibrationSettings.from_options(vars(arguments))
    named = "encoder" in arguments
    encoder = AskedEncoder(getattr(arguments, "encoder", DEFAULT_ENCODER), named or not promotion.wanted)
    promotion.check(arguments.releases, settings.k)
    manifest = calibrate(arguments.data, arguments.releases, encoder, settings, say, watch)
    if key is not None:
        sign(arguments.releases / manifest.release_id, key)
    say(table(manifest))
    say(times(watch))
    path = arguments.releases / manifest.release_id
    ending = unfit(manifest, settings.rule) or promotion.carry_out(path, say, new_encoder=named)
    if arguments.json:
        result = {"release": manifest.release_id, "path": str(path), "manifest": manifest.model_dump()}
        if promotion.rule is not None:
            result["promotion"] = as_json(promotion.rule, ending)
        sys.stdout.buffer.write(orjson.dumps(result) + b"\n")
    else:
        sys.stdout.write(f"{path}\n")
    if ending.decision is not None:
        return report(ending.decision, say)
    if ending.said is not None:
        say(f"taugate: {ending.said}")
    return ending.code
