"""`taugate import`: files, folders and other data sets become a data set."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import Appearance, AsJson, command_of, option
from taugate.cli.terminal.output import print_result, printable, say, say_sentence
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.storage.files import Json
from taugate_import import CHUNK_TOKENS, OVERLAP_TOKENS

if TYPE_CHECKING:
    from taugate_import.chunker import Chunker
    from taugate_import.importing import ImportResult

_COUNTS = ("documents", "chunks", "added", "changed", "removed", "copies", "reread")
_LISTED = 10  # remarks on files, and names, that are listed on the terminal; --json lists all of them


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Options):
    """The options of `taugate import`."""

    sources: Annotated[tuple[Path, ...], Appearance("SOURCE", positional=True)] = Field(
        description="file, folder, or data set in the BEIR layout"
    )
    to: Annotated[Path, Appearance("DATA")] = Field(description="folder of the data set; created if needed")
    encoder: str = option(
        DEFAULT_ENCODER, "encoder whose tokenizer counts tokens and whose window limits a chunk", "NAME_OR_PATH"
    )
    chunks: str = option(
        "auto",
        f"size of a chunk in tokens; auto: {CHUNK_TOKENS}, or the encoder's window if that is smaller; "
        "off: one document per file",
        "auto|off|TOKENS",
    )
    overlap: int = option(OVERLAP_TOKENS, "tokens that consecutive chunks share", "TOKENS")
    strict: bool = option(False, "fail, and write nothing, if a file loses words on its way into the corpus")
    dry_run: bool = option(False, "read everything and say what would change; write nothing")
    as_json: AsJson = False

    def chunker(self) -> "Chunker | None":
        """Return what divides documents into chunks, or None for whole documents."""
        from taugate.calibration.encoding.source import exported_encoder
        from taugate_import.chunker import Chunker

        if self.chunks == "off":
            if self.overlap:
                raise InputError("--overlap: --chunks off makes no chunks; leave one of the two out")
            return None
        size: int | Literal["auto"] = "auto"
        if self.chunks != "auto":
            if not self.chunks.isdecimal() or int(self.chunks) < 1:
                raise InputError(f"--chunks {self.chunks}: give auto, off, or a number of tokens")
            size = int(self.chunks)
        return Chunker.of(exported_encoder(self.encoder), size, self.overlap)


def run(options: ImportOptions) -> int:
    """Make the corpus of a data set from files and other data sets. Files that cannot be read are listed."""
    from taugate_import.importing import ImportPlan, import_files
    from taugate_import.target import ImportRecord

    chunker = options.chunker()
    record = ImportRecord(
        sources=[str(source) for source in options.sources],
        encoder=options.encoder,
        chunk_tokens=chunker.size if chunker else None,
        overlap=options.overlap,
    )
    plan = ImportPlan(options.to, record, chunker, strict=options.strict, dry_run=options.dry_run)
    with ProgressDisplay() as job, job.task("reading files") as task:
        result = import_files([*options.sources], plan, lambda name: task.advance())
    _report_files(result)
    _report_corpus(result, options)
    if options.as_json:
        print_result({"data": str(options.to), **_fields(result)})
    return 0


def _report_files(result: "ImportResult") -> None:
    """Report the files and the parts of files that were not read."""
    _list_files("skipped", [(file.path, file.reason) for file in result.skipped])
    _list_files("words lost", [(note.path, note.note) for note in result.notes if note.share is not None])
    _list_files("numbers lost", [(note.path, note.note) for note in result.notes if note.numbers])
    _list_files("note", _other_notes(result))
    if result.left_out:
        say_sentence(f"left out: metadata fields beyond the first 256: {_names(result.left_out)}")
    if result.shortened:
        say_sentence(f"shortened: lists of more than 256 strings in {printable(', '.join(sorted(result.shortened)))}")
    if result.mixed:
        say_sentence(f"fields with values of several types, of which a filter matches only one: {_names(result.mixed)}")


def _report_corpus(result: "ImportResult", options: ImportOptions) -> None:
    """Report what the data set has now, or would have."""
    if result.kept_labels:
        say_sentence(
            f"{options.to} already has a queries.jsonl, so the queries and judgements of the sources were not copied"
        )
    if result.queries:
        verb = "would be copied" if options.dry_run else "copied"
        say(f"queries {verb}: {result.queries}, with their judgements: {', '.join(result.splits) or 'none'}")
    if result.unreadable_files:
        say_sentence(
            f"warning: the encoder cannot read text in {result.unreadable_files:,} of {result.files:,} files, because "
            "its vocabulary lacks their words; choose an encoder for their language with --encoder"
        )
    if result.copies:
        are = "file is a copy" if result.copies == 1 else "files are copies"
        say_sentence(f"{result.copies:,} {are}; the documents that were imported name them in their field also")
    if result.reread:
        say_sentence(
            f"{result.reread:,} document{'s' * (result.reread != 1)} read differently by this version; recalibrate"
        )
    losing = sum(note.share is not None for note in result.notes)
    say_sentence(
        f"{options.to} {'would hold' if options.dry_run else 'holds'} documents: {result.documents}, chunks: "
        f"{result.chunks} ({result.added} added, {result.changed} changed, {result.removed} removed); files skipped: "
        f"{len(result.skipped)}, with words lost: {losing}"
    )


def _fields(result: "ImportResult") -> dict[str, Json]:
    """Return the fields that --json prints."""
    return {
        **{name: getattr(result, name) for name in _COUNTS},
        "skipped": [{"path": file.path, "reason": file.reason} for file in result.skipped],
        "words": {note.path: note.share for note in result.notes if note.share is not None},
        "numbers": {note.path: [*note.numbers] for note in result.notes if note.numbers},
        "notes": [{"path": path, "note": note} for path, note in _other_notes(result)],
        "queries": result.queries,
        "splits": result.splits,
    }


def _other_notes(result: "ImportResult") -> list[tuple[str, str]]:
    return [(note.path, note.note) for note in result.notes if note.share is None and not note.numbers]


def _list_files(heading: str, remarks: Iterable[tuple[str, str]]) -> None:
    """Print each remark once, with the path of the first file that it is about; at most _LISTED remarks."""
    paths: dict[str, list[str]] = {}
    for path, remark in remarks:
        paths.setdefault(remark, []).append(path)
    for remark, (first, *others) in [*paths.items()][:_LISTED]:
        more = f" (and {len(others):,} more file{'s' * (len(others) > 1)})" if others else ""
        say_sentence(f"{heading}: {printable(first)} {remark}{more}")
    if len(paths) > _LISTED:
        say(f"{heading}: {sum(map(len, [*paths.values()][_LISTED:])):,} more files; --json lists all of them")


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return printable(", ".join(listed[:_LISTED])) + (", …" if len(listed) > _LISTED else "")


command = command_of("import", run, ImportOptions, keys=("encoder", "overlap", "strict"))
