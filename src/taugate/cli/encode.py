"""`taugate encode`: encode a corpus into files of vectors, in one process or many."""

import argparse
import sys
from shlex import quote

import orjson

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.terminal.output import say_labelled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate encode` to its parser."""
    parser.description = (
        "Encode the documents of a data set into shards that calibration reads with --embeddings. If the command was "
        "killed, repeat it to resume."
    )
    parser.add_argument("data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl")
    parser.add_argument(
        "--to", metavar="URL", required=True, help="folder, or URL in object storage, to write the vectors to"
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
        help="number of Ray processes, one processor each (default: encode in this process, on all processors)",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDR",
        help="Ray cluster to encode on (default: this machine); needs --workers",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Encode the corpus, and report the result; returns the exit code."""
    # Imported here because it needs the extra `calibration`.
    from taugate.calibration.encoding.encode import Workers, encode_corpus
    from taugate.cli.terminal.display import ProgressDisplay

    workers = Workers(arguments.workers, arguments.ray_address)
    with ProgressDisplay() as job:
        encoded = encode_corpus(arguments.data, arguments.to, arguments.encoder, workers, job)
    record = encoded.record
    value = {
        "location": arguments.to,
        "digest": record.digest,
        "documents": record.rows,
        "shards": len(record.shards),
        "encoded": encoded.encoded,
    }
    sys.stdout.write(orjson.dumps(value).decode() + "\n" if arguments.json else f"{record.digest}\n")
    sys.stdout.flush()
    rows = {
        "Encoded": f"{record.rows:,} documents in {len(record.shards):,} shards, {encoded.encoded:,} of them now, in "
        f"{job.total:.0f} s",
        "Next": f"taugate calibrate {quote(arguments.data)} --releases releases --engine pgvector --embeddings "
        f"{quote(arguments.to)} --encoder {quote(arguments.encoder)}",
    }
    say_labelled(rows)
    return 0
