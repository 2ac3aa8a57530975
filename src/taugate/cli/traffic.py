"""`taugate traffic`: make labelled queries from user feedback."""

import argparse
import sys
import time
from pathlib import Path
from shlex import quote

import orjson

from taugate.cli.terminal.output import say
from taugate.ingestion.dataset.judgements import HUMAN, TRAFFIC, splits_in
from taugate.ingestion.labels.raters import MAX_BY_KEY, MIN_VOTES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate traffic` to its parser."""
    parser.description = (
        "Make labelled queries from user feedback (POST /feedback). They go to the split traffic, each with a weight "
        "that corrects for results that were not shown or not judged."
    )
    parser.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="query logs of the service, of all replicas")
    parser.add_argument("--to", metavar="DATA", type=Path, required=True, help="folder of the data set")
    parser.add_argument(
        "--split", metavar="NAME", default=TRAFFIC, help=f"split that the judgements go to (default: {TRAFFIC})"
    )
    parser.add_argument(
        "--collection", metavar="NAME", help="name of the data set in the log (default: that of the folder)"
    )
    parser.add_argument(
        "--votes",
        metavar="N",
        type=int,
        default=MIN_VOTES,
        help=f"users who must judge a result before it counts; use more if users err often (default: {MIN_VOTES})",
    )
    parser.add_argument(
        "--most-by-key",
        metavar="N",
        type=int,
        default=MAX_BY_KEY,
        help=f"largest number of judgements to take from one API key, sampled at random (default: {MAX_BY_KEY})",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Learn from the logs, and report what was left out; returns the exit code."""
    from taugate.ingestion.labels.traffic import REASONS, learn_from_traffic

    started = time.monotonic()
    result = learn_from_traffic(
        arguments.logs,
        arguments.to,
        arguments.split,
        collection=arguments.collection,
        max_by_key=arguments.most_by_key,
        votes=arguments.votes,
    )
    seconds = time.monotonic() - started
    left_out = {reason: result.left_out[reason] for reason in REASONS if result.left_out[reason]}
    say(f"Labels from traffic in {arguments.to}. Queries: {result.queries:,}. Judgements: {result.judgements:,}.")
    for reason, count in left_out.items():
        say(f"Left out: {count:,} that {REASONS[reason]}.")
    if arguments.json:
        value = {
            "queries": result.queries,
            "judgements": result.judgements,
            "left_out": left_out,
            "seconds": seconds,
        }
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
    else:
        data = quote(str(arguments.to))
        if HUMAN in splits_in(arguments.to):
            say(f"Next: taugate calibrate {data} --releases releases --labels {HUMAN},{TRAFFIC}")
        else:  # users never see what a search misses, so traffic alone cannot measure accuracy
            say(f"Next: taugate judge {data} --releases releases, and calibrate with --labels {HUMAN},{TRAFFIC}")
    return 0
