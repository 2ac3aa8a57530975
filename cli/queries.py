"""`taugate queries`: queries for a corpus that nobody has labelled."""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from shlex import quote

import orjson

from taugate.cli.terminal.output import say
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.ingestion.queries.generate import MOST_QUERIES, GeneratedQueries, generate_crops

_REASONS = {"empty": "too short", "duplicate": "with the same words as another query"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate queries` to its parser."""
    parser.description = (
        "Make queries from the documents themselves, for a corpus that nobody has labelled. "
        "They go to the split generated; queries that people asked stay as they are."
    )
    parser.add_argument("data", metavar="DATA", type=Path, help="folder of the data set, with corpus.jsonl")
    parser.add_argument(
        "--method",
        choices=["crop"],
        default="crop",
        help="crop: a span of a document's words, some of them deleted (default: crop)",
    )
    parser.add_argument(
        "--max",
        metavar="N",
        type=int,
        default=MOST_QUERIES,
        help=f"make queries from at most N passages, a seeded sample of the corpus (default: {MOST_QUERIES})",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of every random choice (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the queries, and say how many there are. arguments: the parsed command line. Returns the exit code."""
    started = time.monotonic()
    result = generate_crops(arguments.data, arguments.max, arguments.seed)
    seconds = time.monotonic() - started
    say(_summary(arguments.data, result))
    if arguments.json:
        value = {"kept": result.kept, "lost": asdict(result.lost), "seconds": seconds, "cost": 0.0}
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
    else:
        say(f"Next: taugate calibrate {quote(str(arguments.data))} --releases releases --split {GENERATED}")
    return 0


def _summary(data: Path, result: GeneratedQueries) -> str:
    lost = [f"{count} {_REASONS[reason]}" for reason, count in asdict(result.lost).items() if count]
    sampled = result.kept + sum(asdict(result.lost).values())
    source = f"its {sampled:,}" if sampled == result.documents else f"{sampled:,} of its {result.documents:,}"
    return (
        f"{data} has {result.kept:,} queries cropped from {source} passages"
        f"{'; passages that gave none: ' + ', '.join(lost) if lost else ''}"
    )
