"""`taugate import`: files in, a data set's corpus out, and what has changed since the last time."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import InputError
from taugate.ingestion.chunks.chunker import Chunk, Chunker
from taugate.ingestion.dataset.beir import CORPUS
from taugate.ingestion.dataset.lines import read_objects
from taugate.ingestion.dataset.lock import LOCK, sole_writer
from taugate.ingestion.importers.parse import IsolatedParser
from taugate.ingestion.importers.source_files import Skipped, SourceFile, find_files
from taugate.ingestion.parsed import ParsedDocument, UnreadableFile
from taugate.retrieval.documents.store import MOST_FIELDS
from taugate.storage.files import atomic_write

RECORD = "import.json"
_OWN_FIELDS = ("path", "title", "heading", "page", "created", "modified")


class ImportRecord(BaseModel):
    """What `import.json` says about how the corpus beside it was made.

    schema_version: of this file. sources: as they were named. encoder: whose tokenizer counted. chunk_tokens: the size
    of a chunk in tokens, None where documents were left whole. overlap: in tokens.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    sources: list[str]
    encoder: str
    chunk_tokens: int | None
    overlap: int


@dataclass
class ImportResult:
    """What an import did.

    documents: files and records with text. chunks: lines of the corpus. added, changed, removed: documents, compared
    with the corpus before. skipped: files that were not read. left_out: names of metadata fields beyond the most that a
    corpus may have.
    """

    documents: int = 0
    chunks: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)


def import_files(
    sources: Sequence[Path],
    data: Path,
    record: ImportRecord,
    chunker: Chunker | None,
    *,
    dry_run: bool = False,
    progress: Callable[[str], object] = lambda path: None,
) -> ImportResult:
    """Read all files below the sources, and replace the corpus of a data set by them.

    Queries and qrels of the data set stay as they are. The corpus is replaced in one step, after everything was read.

    sources: files and folders. data: folder of the data set, made where needed. record: how the corpus is made.
    chunker: divides documents, None leaves them whole. dry_run: nothing is written. progress: called with each file's
    name before it is read. Raises InputError where a source is missing, nothing can be read, or the data set was not
    made by an import.
    """
    _check_target(data, sources)
    result = ImportResult()
    with ExitStack() as stack:
        if not dry_run:
            if not data.exists():
                stack.callback(_remove_unused, data)
            data.mkdir(parents=True, exist_ok=True)
            stack.enter_context(sole_writer(data))
        before = _digests(data / CORPUS)
        spool = stack.enter_context(tempfile.TemporaryFile(dir=None if dry_run else data))
        after: dict[str, str] = {}
        for document, lines in _documents(sources, chunker, result, progress):
            spool.write(lines)
            after[document] = hashlib.sha256(lines).hexdigest()
        if not after:
            raise InputError(_nothing_readable(sources, result.skipped))
        result.documents = len(after)
        result.added = len(after.keys() - before.keys())
        result.removed = len(before.keys() - after.keys())
        result.changed = sum(before[each] != digest for each, digest in after.items() if each in before)
        if not dry_run:
            spool.seek(0)
            atomic_write(data / RECORD, record.model_dump_json(indent=2).encode() + b"\n")
            atomic_write(data / CORPUS, spool.read())
    return result


def _documents(
    sources: Sequence[Path], chunker: Chunker | None, result: ImportResult, progress: Callable[[str], object]
) -> Iterator[tuple[str, bytes]]:
    """Yield the id of each document with the lines of its chunks; what is skipped and counted goes into `result`."""
    fields: set[str] = set(_OWN_FIELDS)
    with IsolatedParser() as parser:
        for found in find_files(sources):
            if isinstance(found, Skipped):
                result.skipped.append(found)
                continue
            progress(found.name)
            try:
                documents = parser.parse(found.path)
            except UnreadableFile as error:
                result.skipped.append(Skipped.of(found.path, str(error)))
                continue
            except OSError as error:
                result.skipped.append(Skipped.of(found.path, f"cannot be opened ({error.strerror})"))
                continue
            modified = datetime.fromtimestamp(found.path.stat().st_mtime, UTC).date().isoformat()
            for document in documents:
                identifier = f"{found.name}/{document.key}" if document.key else found.name
                metadata = {"modified": modified} | _known_fields(document, fields, result.left_out)
                chunks = chunker.chunks(document) if chunker else [_whole(document)]
                result.chunks += len(chunks)
                yield identifier, _lines(identifier, found, document, chunks, metadata)


def _whole(document: ParsedDocument) -> Chunk:
    return Chunk(0, len(document.text), document.title, "", None)


def _known_fields(document: ParsedDocument, fields: set[str], left_out: set[str]) -> dict[str, Any]:
    """Return the document's metadata; fields beyond the most that a corpus may have are left out, and remembered."""
    kept = {}
    for name, value in document.metadata.items():
        if name in fields or len(fields) < MOST_FIELDS:
            fields.add(name)
            kept[name] = value
        else:
            left_out.add(name)
    return kept


def _lines(
    identifier: str, file: SourceFile, document: ParsedDocument, chunks: Sequence[Chunk], metadata: dict[str, Any]
) -> bytes:
    """Return a document as lines of the corpus: one a chunk, each with its parent and span where there are several."""
    lines = []
    for number, chunk in enumerate(chunks):
        own: dict[str, Any] = {"path": file.name, "title": document.title, "heading": chunk.heading, "page": chunk.page}
        line: dict[str, Any] = {
            "_id": f"{identifier}#{number}" if len(chunks) > 1 else identifier,
            "title": chunk.title,
            "text": document.text[chunk.start : chunk.end],
            "metadata": metadata | {name: value for name, value in own.items() if value not in {None, ""}},
        }
        if len(chunks) > 1:
            line |= {"parent": identifier, "span": [chunk.start, chunk.end]}
        lines.append(orjson.dumps(line) + b"\n")
    return b"".join(lines)


def _remove_unused(data: Path) -> None:
    """Remove a folder that this import made, and wrote no corpus into."""
    if not (data / CORPUS).exists():
        with suppress(OSError):
            (data / LOCK).unlink(missing_ok=True)
            data.rmdir()


def _check_target(data: Path, sources: Sequence[Path]) -> None:
    """Raise InputError where the folder holds another corpus or is a source, or two sources have one name."""
    names = [source.resolve().name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two sources are named {twice!r}, so their documents would share ids; rename one, or import the folder "
            "that holds both"
        )
    if data.exists() and not data.is_dir():
        raise InputError(f"{data}: is a file; --to names a folder")
    for source in sources:
        if source.is_dir() and data.resolve().is_relative_to(source.resolve()):
            raise InputError(f"{data}: lies inside {source}, and would be imported itself; choose a folder beside it")
    if not (data / CORPUS).exists():
        return
    if not (data / RECORD).is_file():
        raise InputError(f"{data}: holds a corpus that was not imported; choose another folder, so that it is not lost")
    try:
        ImportRecord.model_validate_json((data / RECORD).read_bytes())
    except ValidationError as error:
        raise InputError(f"{data / RECORD}: written by another version of taugate; import into a new folder") from error


def _digests(corpus: Path) -> dict[str, str]:
    """Return the SHA-256 of each document's lines in a corpus, by its id; empty where there is no corpus."""
    if not corpus.exists():
        return {}
    lines: dict[str, list[bytes]] = {}
    for _, line in read_objects(corpus):
        identifier = str(line.get("parent") or line.get("_id", ""))
        lines.setdefault(identifier, []).append(orjson.dumps(line) + b"\n")
    return {identifier: hashlib.sha256(b"".join(each)).hexdigest() for identifier, each in lines.items()}


def _nothing_readable(sources: Iterable[Path], skipped: Sequence[Skipped]) -> str:
    where = ", ".join(str(source) for source in sources)
    if not skipped:
        return f"{where}: holds no file; name a folder with txt, md, html, pdf, docx, csv, json, jsonl or parquet files"
    first = skipped[0]
    more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f"{where}: holds nothing that can be read: {first.path} {first.reason}{more}"
