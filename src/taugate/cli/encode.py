"""`taugate encode`: the vectors of a corpus as files, made by one process or by many."""

import argparse
import sys
from shlex import quote

import orjson

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.progress import Stopwatch
from taugate.cli.terminal.output import say_labelled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate encode` to its parser."""
    parser.description = (
        "Encode the documents of a data set into shards that calibration reads with --embeddings. A command that was "
        "killed goes on where it was when it is repeated."
    )
    parser.add_argument("data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl")
    parser.add_argument(
        "--to", metavar="URL", required=True, help="folder, or URL in object storage, that the vectors go to"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=DEFAULT_ENCODER,
        help=f"sentence-transformers model, or exported encoder (default: {DEFAULT_ENCODER})",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="processes of Ray that encode, each on one processor (default: this process, on all processors)",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDR",
        help="Ray cluster whose machines encode (default: this machine alone); takes --workers",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Encode, and say what was done.

    Args:
        arguments: The parsed command line. Returns 0.

    Raises:
        TaugateError: .
    """
    # What this needs comes with the extra `calibration`, which other subcommands do without.
    from taugate.calibration.encoding.encode import Workers, encode_corpus
    from taugate.cli.terminal.display import ProgressDisplay

    workers = Workers(arguments.workers, arguments.ray_address)
    watch = Stopwatch()
    with ProgressDisplay(watch):
        done = encode_corpus(arguments.data, arguments.to, arguments.encoder, workers, watch)
    record = done.record
    value = {
        "location": arguments.to,
        "digest": record.digest,
        "documents": record.rows,
        "shards": len(record.shards),
        "encoded": done.encoded,
    }
    sys.stdout.write(orjson.dumps(value).decode() + "\n" if arguments.json else f"{record.digest}\n")
    sys.stdout.flush()
    rows = {
        "Encoded": f"{record.rows:,} documents in {len(record.shards):,} shards, {done.encoded:,} of them now, in "
        f"{watch.total:.0f} s",
        "Next": f"taugate calibrate {quote(arguments.data)} --releases releases --engine pgvector --embeddings "
        f"{quote(arguments.to)} --encoder {quote(arguments.encoder)}",
    }
    say_labelled(rows)
    return 0
