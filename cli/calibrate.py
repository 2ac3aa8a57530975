"""`taugate calibrate`: settings from the command line, progress to stderr, the result to stdout."""

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

import orjson

from taugate.calibration.comparison.words import as_json, report, unfit
from taugate.calibration.encoding.source import DEFAULT_ENCODER, AskedEncoder
from taugate.calibration.progress import Stopwatch
from taugate.calibration.report.terminal import table, times
from taugate.calibration.settings.rules import CONFIDENCE, MAX_LOSS, AbstentionRule, AskedPolicy, Rule
from taugate.calibration.settings.settings import (
    MARGIN,
    RETENTION,
    AskedPrecision,
    AskedProjection,
    CalibrationSettings,
    Cheaper,
    Gate,
)
from taugate.cli.promotion_rule import AskedPromotion, add_options
from taugate.registry.signing import sign, signing_key
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.policy.policy import Metric
from taugate.retrieval.release.evidence import Method, Statement


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `calibrate`. Choices are those that this version has."""
    default = CalibrationSettings()
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="measure a labelled data set, choose the threshold, write and promote a release",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    parser.add_argument("--split", default=default.split, help="file in qrels/, without .tsv")
    parser.add_argument("--k", type=int, default=default.k, help="documents retrieved a query")
    parser.add_argument("--bootstraps", type=int, default=default.bootstraps, help="m, bootstrap samples")
    parser.add_argument("--sample-size", type=int, default=default.sample_size, help="l, queries in each of them")
    parser.add_argument("--seed", type=int, default=default.seed, help="of every random choice")
    parser.add_argument("--holdout", type=float, default=default.holdout, help="share of queries kept out")
    _add_rule(parser)
    _add_gate(parser)
    add_options(parser)
    parser.add_argument(
        "--overlap-percentile", type=float, default=default.overlap_percentile, help="of S_topK that gives θ"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=argparse.SUPPRESS,  # one that is named may differ from the current release's
        help=f"sentence-transformers model ({DEFAULT_ENCODER})",
    )
    parser.add_argument("--json", action="store_true", help="print the release and its manifest as one JSON object")
    parser.add_argument("--sign-with", metavar="PEM", type=Path, help="Ed25519 private key to sign the release with")
    parser.set_defaults(run=run)


def _add_rule(parser: argparse.ArgumentParser) -> None:
    """How the threshold is chosen. Without any of these it is the papers' rule; --max-loss alone certifies a cut."""
    rule = parser.add_argument_group(
        "threshold", "without any of these: the papers' rule; --max-loss alone: a certified cut"
    )
    chosen = argparse.SUPPRESS  # no default to show: what is left out follows from what is given
    rule.add_argument("--method", choices=get_args(Method), default=chosen, help="how the threshold is chosen")
    rule.add_argument("--policy", choices=get_args(AskedPolicy), default=chosen, help="what is compared with it")
    rule.add_argument(
        "--max-loss",
        metavar="X[,X…]",
        type=_shares,
        default=chosen,
        help=f"share of the queries that may lose their answer ({MAX_LOSS}); of several the first is in force, and all "
        "are certified together",
    )
    rule.add_argument("--metric", choices=get_args(Metric), default="accuracy", help="what it is a share of")
    rule.add_argument(
        "--guarantee", choices=get_args(Statement), default=chosen, help="of risk-control (high-probability)"
    )
    rule.add_argument(
        "--confidence", metavar="P", type=float, default=chosen, help=f"of the certified statement ({CONFIDENCE})"
    )
    rule.add_argument(
        "--max-empty",
        metavar="X",
        type=float,
        default=chosen,
        help="share of answerable queries that may be left without a result",
    )
    rule.add_argument(
        "--strata",
        metavar="metadata.FIELD",
        default=chosen,
        help="certify the queries about each value of a field by themselves",
    )
    rule.add_argument(
        "--max-answered",
        metavar="X",
        type=float,
        default=chosen,
        help="share of unanswerable queries that may get a result: queries are then refused as a whole, before any "
        "cut, and --max-empty limits the share of answerable ones refused, which has no limit else",
    )


def _shares(text: str) -> list[float]:
    """Numbers with commas between them; argparse shows the message of the error."""
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}": give a share such as 0.01, or several such as 0.01,0.02') from None


def _add_gate(parser: argparse.ArgumentParser) -> None:
    """What may be made cheaper, and what it must not lose."""
    gate = parser.add_argument_group("gate", "what is cheaper is used where it is shown to lose less than a margin")
    gate.add_argument(
        "--projection", choices=get_args(AskedProjection), default="none", help="of embeddings before the search"
    )
    gate.add_argument(
        "--retention",
        metavar="R",
        type=float,
        default=argparse.SUPPRESS,
        help=f"share of the dimensions that query-pca keeps ({RETENTION:g})",
    )
    gate.add_argument(
        "--precision", choices=get_args(AskedPrecision), default="float32", help="in which queries are encoded"
    )
    gate.add_argument("--index", choices=[*get_args(Kind), "auto"], default="flat", help="of documents")
    gate.add_argument(
        "--margin",
        metavar="X",
        type=float,
        default=argparse.SUPPRESS,
        help=f"loss of accuracy@K and of NDCG@10 ({MARGIN}, or what the labels can show)",
    )
    gate.add_argument(
        "--gate-confidence", metavar="P", type=float, default=CONFIDENCE, help="that the loss is below the margin"
    )


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, promote, report. Returns the exit code; a TaugateError is the caller's to report."""
    from taugate.calibration.job.job import (
        calibrate,  # what it needs comes with the extra `calibration`, and serving does not
    )

    promotion = AskedPromotion.of(arguments)
    key = signing_key(arguments.sign_with, promoting=promotion.wanted)
    watch = Stopwatch()
    names = ["split", "k", "bootstraps", "sample_size", "seed", "holdout", "overlap_percentile"]
    asked = ("method", "policy", "metric", "guarantee", "max_loss", "confidence", "max_empty", "strata", "max_answered")
    given = {name: getattr(arguments, name) for name in asked if name in arguments}
    abstention, of_the_cut = AbstentionRule.asked(given)
    rule = Rule.asked(**of_the_cut)
    cheaper = Cheaper(
        arguments.projection,
        getattr(arguments, "retention", None),
        arguments.precision,
        arguments.index,
        Gate(getattr(arguments, "margin", None), arguments.gate_confidence),
    )
    plain = {name: getattr(arguments, name) for name in names}
    settings = CalibrationSettings(**plain, rule=rule, abstention=abstention, cheaper=cheaper)
    named = "encoder" in arguments
    encoder = AskedEncoder(getattr(arguments, "encoder", DEFAULT_ENCODER), named or not promotion.wanted)
    promotion.check(arguments.releases, settings.k)
    manifest = calibrate(arguments.data, arguments.releases, encoder, settings, say, watch)
    if key is not None:
        sign(arguments.releases / manifest.release_id, key)
    say(table(manifest))
    say(times(watch))
    path = arguments.releases / manifest.release_id
    ending = unfit(manifest, rule) or promotion.carry_out(path, say, new_encoder=named)
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


def say(line: str) -> None:
    """Progress is for people: stderr, so that stdout holds the result alone."""
    sys.stderr.write(line + "\n")
