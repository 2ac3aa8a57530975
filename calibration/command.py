"""`taugate calibrate`: settings from the command line, progress to stderr, the result to stdout."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from calibration.encoding.source import DEFAULT_ENCODER
from calibration.report import table, times
from calibration.settings import CalibrationSettings
from calibration.stopwatch import Stopwatch
from retrieval.release.catalog import promote


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `calibrate`. Choices are those that this version has."""
    default = CalibrationSettings()
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="measure a labelled data set, choose the threshold, write and promote a release",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA", type=Path, help="folder with corpus.jsonl, queries.jsonl, qrels/")
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    parser.add_argument("--split", default=default.split, help="file in qrels/, without .tsv")
    parser.add_argument("--k", type=int, default=default.k, help="documents retrieved a query")
    parser.add_argument("--bootstraps", type=int, default=default.bootstraps, help="m, bootstrap samples")
    parser.add_argument("--sample-size", type=int, default=default.sample_size, help="l, queries in each of them")
    parser.add_argument("--seed", type=int, default=default.seed, help="of every random choice")
    parser.add_argument("--holdout", type=float, default=default.holdout, help="share of queries kept out")
    parser.add_argument("--method", choices=["bootstrap"], default="bootstrap", help="how the threshold is chosen")
    parser.add_argument("--policy", choices=["similarity"], default="similarity", help="what is compared with it")
    parser.add_argument("--projection", choices=["none"], default="none", help="of embeddings before the search")
    parser.add_argument("--index", choices=["flat"], default="flat", help="kind of index")
    parser.add_argument(
        "--overlap-percentile", type=float, default=default.overlap_percentile, help="of S_topK that gives θ"
    )
    parser.add_argument(
        "--encoder", metavar="NAME_OR_PATH", default=DEFAULT_ENCODER, help="sentence-transformers model"
    )
    parser.add_argument("--json", action="store_true", help="print the release and its manifest as one JSON object")
    parser.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, promote, report. Returns the exit code; a TaugateError is the caller's to report."""
    from calibration.job import calibrate  # what it needs comes with the extra `calibration`, and serving does not

    watch = Stopwatch()
    names = ("split", "k", "bootstraps", "sample_size", "seed", "holdout", "overlap_percentile")
    settings = CalibrationSettings(**{name: getattr(arguments, name) for name in names})
    manifest = calibrate(arguments.data, arguments.releases, arguments.encoder, settings, say, watch)
    if not arguments.no_promote:
        promote(arguments.releases, manifest.release_id)
    say(table(manifest))
    say(times(watch))
    path = str(arguments.releases / manifest.release_id)
    if arguments.json:
        result = {"release": manifest.release_id, "path": path, "manifest": manifest.model_dump()}
        sys.stdout.buffer.write(orjson.dumps(result) + b"\n")
    else:
        sys.stdout.write(path + "\n")
    return 0


def say(line: str) -> None:
    """Progress is for people: stderr, so that stdout holds the result alone."""
    sys.stderr.write(line + "\n")
