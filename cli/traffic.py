"""`taugate traffic`: what users said of results becomes labelled queries."""

import argparse
import sys
import time
from pathlib import Path
from shlex import quote

import orjson

from taugate.cli.terminal.output import say
from taugate.ingestion.dataset.judgements import TRAFFIC


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate traffic` to its parser."""
    parser.description = (
        "Turn what users said of results (POST /feedback) into labelled queries. They go to the split traffic, each "
        "with a weight that makes up for what nobody saw or judged."
    )
    parser.add_argument("logs", metavar="LOG", type=Path, nargs="+", help="query log of the service, one a replica")
    parser.add_argument("--to", metavar="DATA", type=Path, required=True, help="folder of the data set")
    parser.add_argument("--split", default=TRAFFIC, help="split whose judgements are written (default: traffic)")
    parser.add_argument(
        "--collection", metavar="NAME", help="name of the data set in the log (default: that of the folder)"
    )
    parser.add_argument(
        "--votes",
        metavar="N",
        type=int,
        default=1,
        help="users who have to judge a result before it counts; more where users err (default: 1)",
    )
    parser.add_argument(
        "--most-by-key",
        metavar="N",
        type=int,
        default=1000,
        help="judgements of one API key that are taken, a sample of them (default: 1000)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Learn from the logs, and say what was left out. arguments: the parsed command line. Returns the exit code."""
    from taugate.ingestion.labels.traffic import REASONS, learn_from_traffic

    started = time.monotonic()
    result = learn_from_traffic(
        arguments.logs,
        arguments.to,
        arguments.split,
        collection=arguments.collection,
        most_by_key=arguments.most_by_key,
        votes=arguments.votes,
    )
    seconds = time.monotonic() - started
    left_out = {reason: result.left_out[reason] for reason in REASONS if result.left_out[reason]}
    say(f"Labelled queries from traffic in {arguments.to}: {result.queries:,}, with judgements: {result.judgements:,}.")
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
        say(f"Next: taugate calibrate {data} --releases releases --split {arguments.split}")
    return 0
