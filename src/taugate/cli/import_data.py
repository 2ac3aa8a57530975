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

_LISTED = 10  # files of a heading that are named on the terminal; --json names all of them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate import` to its parser."""
    parser.description = "Make the corpus of a data set from files and other data sets. What cannot be read is named."
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="+", type=Path, help="file, folder, or data set in the BEIR layout"
    )
    parser.add_argument(
        "--to", metavar="DATA", type=Path, required=True, help="folder of the data set; made where needed"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=DEFAULT_ENCODER,
        help=f"whose tokenizer counts, and whose window the chunks fit (default: {DEFAULT_ENCODER})",
    )
    parser.add_argument(
        "--chunks",
        metavar="auto|off|TOKENS",
        default="auto",
        help=f"size of a chunk in tokens; auto: {CHUNK_TOKENS}, or the encoder's window where that is smaller; "
        "off: one document a file (default: auto)",
    )
    parser.add_argument(
        "--overlap",
        metavar="TOKENS",
        type=int,
        default=OVERLAP_TOKENS,
        help=f"tokens that a chunk repeats from the one before (default: {OVERLAP_TOKENS})",
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
    """Import, and say what was read and what was not.

    Args:
        arguments: The parsed command line. Returns the exit code.
    """
    from taugate.calibration.encoding.source import exported_encoder
    from taugate.calibration.progress import Stopwatch
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
    watch = Stopwatch()
    with ProgressDisplay(watch), watch.task("reading files") as task:

        def count(_name: str) -> None:
            task.done += 1

        result = import_files(arguments.sources, plan, count)
    _list_files("skipped", [f"{printable(file.path)} {file.reason}" for file in result.skipped])
    losing = [note for note in result.notes if note.share is not None]
    _list_files("words lost", [f"{printable(note.path)} {note.note}" for note in losing])
    _list_files("note", [f"{printable(note.path)} {note.note}" for note in result.notes if note.share is None])
    if result.left_out:
        names = sorted(result.left_out)
        more = ", …" if len(names) > _LISTED else ""
        say(f"left out: metadata fields beyond the first 256: {printable(', '.join(names[:_LISTED]))}{more}")
    if result.shortened:
        say(f"shortened: lists of more than 256 strings in {printable(', '.join(sorted(result.shortened)))}")
    if result.mixed:
        names = sorted(result.mixed)
        more = ", …" if len(names) > _LISTED else ""
        say(f"values of several kinds, of which a filter finds one: {printable(', '.join(names[:_LISTED]))}{more}")
    if result.kept_labels:
        say(f"{arguments.to} has a queries.jsonl already, so queries and judgements of the sources were not copied")
    if result.queries:
        verb = "would be copied" if arguments.dry_run else "copied"
        say(f"queries {verb}: {result.queries}, with their judgements: {', '.join(result.splits) or 'none'}")
    if result.unreadable_files:
        say(
            f"warning: the encoder cannot read text in {result.unreadable_files:,} of {result.files:,} files, as it "
            "does not know their words; import with --encoder that names one for their language"
        )
    verb = "would hold" if arguments.dry_run else "holds"
    say(
        f"{arguments.to} {verb} documents: {result.documents}, chunks: {result.chunks} ({result.added} added, "
        f"{result.changed} changed, {result.removed} removed); files skipped: {len(result.skipped)}, "
        f"with words lost: {len(losing)}"
    )
    if arguments.json:
        counted = {name: getattr(result, name) for name in ("documents", "chunks", "added", "changed", "removed")}
        skipped = [{"path": each.path, "reason": each.reason} for each in result.skipped]
        labels = {"queries": result.queries, "splits": result.splits}
        words = {note.path: note.share for note in losing}
        notes = [{"path": note.path, "note": note.note} for note in result.notes if note.share is None]
        value = {"data": str(arguments.to), **counted, "skipped": skipped, "words": words, "notes": notes, **labels}
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
    return 0


def _list_files(heading: str, sentences: list[str]) -> None:
    """Say one line a file, up to _LISTED, and how many more there are."""
    for sentence in sentences[:_LISTED]:
        say(f"{heading}: {sentence}")
    if len(sentences) > _LISTED:
        say(f"{heading}: {len(sentences) - _LISTED} more; --json names all of them")


def _size(chunks: str) -> int | Literal["auto"]:
    """Parse `--chunks` as a number of tokens or auto.

    Raises:
        InputError: .
    """
    if chunks == "auto":
        return "auto"
    if not chunks.isdecimal() or int(chunks) < 1:
        raise InputError(f"--chunks {chunks}: give auto, off, or a number of tokens")
    return int(chunks)
