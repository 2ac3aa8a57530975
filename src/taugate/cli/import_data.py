"""`taugate import`: files, folders and other data sets become a data set."""

import argparse
import sys
from pathlib import Path
from typing import Literal

import orjson

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.terminal.output import printable, say
from taugate.errors import InputError
from taugate.ingestion.chunks import CHUNK_TOKENS, OVERLAP_TOKENS

_LISTED = 10  # files listed under a heading on the terminal; --json lists all of them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate import` to its parser."""
    parser.description = (
        "Make the corpus of a data set from files and other data sets. Files that cannot be read are listed."
    )
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="+", type=Path, help="file, folder, or data set in the BEIR layout"
    )
    parser.add_argument(
        "--to", metavar="DATA", type=Path, required=True, help="folder of the data set; created if needed"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=DEFAULT_ENCODER,
        help=f"encoder whose tokenizer counts tokens and whose window limits a chunk (default: {DEFAULT_ENCODER})",
    )
    parser.add_argument(
        "--chunks",
        metavar="auto|off|TOKENS",
        default="auto",
        help=f"size of a chunk in tokens; auto: {CHUNK_TOKENS}, or the encoder's window if that is smaller; "
        "off: one document per file (default: auto)",
    )
    parser.add_argument(
        "--overlap",
        metavar="TOKENS",
        type=int,
        default=OVERLAP_TOKENS,
        help=f"tokens that consecutive chunks share (default: {OVERLAP_TOKENS})",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail, and write nothing, if a file loses words on its way into the corpus",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="read everything and say what would change; write nothing"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Import the sources, and report what was read, skipped or lost; returns the exit code."""
    from taugate.calibration.encoding.source import exported_encoder
    from taugate.cli.terminal.display import ProgressDisplay
    from taugate.ingestion.chunks.chunker import Chunker
    from taugate.ingestion.importers.importing import ImportPlan, ImportRecord, import_files

    if arguments.chunks == "off" and arguments.overlap:
        raise InputError("--overlap: --chunks off makes no chunks; leave one of the two out")
    chunker = None
    if arguments.chunks != "off":
        size = _size(arguments.chunks)
        chunker = Chunker.of(exported_encoder(arguments.encoder), size, arguments.overlap)
    record = ImportRecord(
        sources=[str(source) for source in arguments.sources],
        encoder=arguments.encoder,
        chunk_tokens=chunker.size if chunker else None,
        overlap=arguments.overlap,
    )
    plan = ImportPlan(arguments.to, record, chunker, strict=arguments.strict, dry_run=arguments.dry_run)
    with ProgressDisplay() as job, job.task("reading files") as task:
        result = import_files(arguments.sources, plan, lambda name: task.advance())
    _list_files("skipped", [f"{printable(file.path)} {file.reason}" for file in result.skipped])
    losing = [note for note in result.notes if note.share is not None]
    _list_files("words lost", [f"{printable(note.path)} {note.note}" for note in losing])
    _list_files("note", [f"{printable(note.path)} {note.note}" for note in result.notes if note.share is None])
    if result.left_out:
        names = sorted(result.left_out)
        ellipsis = ", …" if len(names) > _LISTED else ""
        say(f"left out: metadata fields beyond the first 256: {printable(', '.join(names[:_LISTED]))}{ellipsis}")
    if result.shortened:
        say(f"shortened: lists of more than 256 strings in {printable(', '.join(sorted(result.shortened)))}")
    if result.mixed:
        names = sorted(result.mixed)
        ellipsis = ", …" if len(names) > _LISTED else ""
        say(
            "fields with values of several types, of which a filter matches only one: "
            f"{printable(', '.join(names[:_LISTED]))}{ellipsis}"
        )
    if result.kept_labels:
        say(f"{arguments.to} already has a queries.jsonl, so the queries and judgements of the sources were not copied")
    if result.queries:
        verb = "would be copied" if arguments.dry_run else "copied"
        say(f"queries {verb}: {result.queries}, with their judgements: {', '.join(result.splits) or 'none'}")
    if result.unreadable_files:
        say(
            f"warning: the encoder cannot read text in {result.unreadable_files:,} of {result.files:,} files, because "
            "its vocabulary lacks their words; choose an encoder for their language with --encoder"
        )
    verb = "would hold" if arguments.dry_run else "holds"
    say(
        f"{arguments.to} {verb} documents: {result.documents}, chunks: {result.chunks} ({result.added} added, "
        f"{result.changed} changed, {result.removed} removed); files skipped: {len(result.skipped)}, "
        f"with words lost: {len(losing)}"
    )
    if arguments.json:
        counted = {name: getattr(result, name) for name in ("documents", "chunks", "added", "changed", "removed")}
        skipped = [{"path": file.path, "reason": file.reason} for file in result.skipped]
        labels = {"queries": result.queries, "splits": result.splits}
        words = {note.path: note.share for note in losing}
        notes = [{"path": note.path, "note": note.note} for note in result.notes if note.share is None]
        value = {"data": str(arguments.to), **counted, "skipped": skipped, "words": words, "notes": notes, **labels}
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
    return 0


def _list_files(heading: str, sentences: list[str]) -> None:
    """Print one line per file, at most _LISTED of them, then the number of the others."""
    for sentence in sentences[:_LISTED]:
        say(f"{heading}: {sentence}")
    if len(sentences) > _LISTED:
        say(f"{heading}: {len(sentences) - _LISTED} more; --json lists all of them")


def _size(chunks: str) -> int | Literal["auto"]:
    """Parse `--chunks` as a number of tokens or "auto".

    Raises:
        InputError: If the text is neither.
    """
    if chunks == "auto":
        return "auto"
    if not chunks.isdecimal() or int(chunks) < 1:
        raise InputError(f"--chunks {chunks}: give auto, off, or a number of tokens")
    return int(chunks)
