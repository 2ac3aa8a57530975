"""`taugate import`: documents in, a data set's corpus out, and what has changed since the last time."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import InputError
from taugate.ingestion.chunks.chunker import Chunker
from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.lines import read_objects, stored_file
from taugate.ingestion.dataset.lock import LOCK, sole_writer
from taugate.ingestion.importers.data_sets import RECORD, Labels, documents_of_data_set, is_data_set
from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.files import documents_of_files
from taugate.ingestion.importers.source_files import FileNote, Skipped
from taugate.ingestion.importers.unread_files import UnreadFiles
from taugate.retrieval.documents.store import MOST_FIELDS, MOST_TAGS, MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import atomic_write, sync_folder

_PARTIAL = f".{CORPUS}.new"
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

    documents: with text, of all sources. chunks: lines of the corpus. added, changed, removed: documents, compared with
    the corpus before. skipped: files and documents that were not read. notes: on files that were. queries, splits: how many queries came from data
    sets, and the splits of their judgements. kept_labels: whether those of data sets were left out, because the target
    has queries of its own. files, unreadable_files: with text, and those of them with passages that the encoder cannot
    read; 0 if documents are left whole. left_out: names of metadata fields beyond the most that a corpus may have. shortened: names
    of those that hold more strings than a list may have.
    """

    documents: int = 0
    chunks: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[FileNote] = field(default_factory=list)
    queries: int = 0
    splits: list[str] = field(default_factory=list)
    kept_labels: bool = False
    files: int = 0
    unreadable_files: int = 0
    left_out: set[str] = field(default_factory=set)
    shortened: set[str] = field(default_factory=set)


def import_files(
    sources: Sequence[Path],
    data: Path,
    record: ImportRecord,
    chunker: Chunker | None,
    *,
    strict: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], object] = lambda name: None,
) -> ImportResult:
    """Read everything below the sources, and replace the corpus of a data set by it.

    Queries and qrels of the data set stay as they are. Where it has no queries, those of the sources are copied. With
    several sources, the ids of a source's documents begin with its name; those of the only data set among them do not.

    sources: files, folders, and data sets, which are folders that hold corpus.jsonl. data: folder of the data set, made
    where needed. record: how the corpus is made. chunker: divides documents, None leaves them whole. strict: whether a
    file that loses words is an error. dry_run: nothing is written. progress: called with a name for each file and each
    document of a data set. Raises InputError if a source is missing, nothing can be read, a file loses words under
    `strict`, or the target was not made by an import, and at the first fault of a data set.
    """
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: no such file or folder; name what is to be imported")
    _check_target(data)
    _check_names(data, sources)
    data_sets = [source for source in sources if is_data_set(source)]
    prefixes = {source: f"{source.resolve().name}/" if len(sources) > 1 else "" for source in sources}
    if len(data_sets) == 1:
        prefixes[data_sets[0]] = ""

    def documents() -> Iterator[ImportedDocument | Skipped | FileNote]:
        for are_data_sets, group in groupby(sources, key=data_sets.__contains__):
            named = [(source, prefixes[source]) for source in group]
            if not are_data_sets:
                yield from documents_of_files(named, progress)
                continue
            for source, prefix in named:
                for found in documents_of_data_set(source, prefix):
                    progress(source.name)
                    yield found

    labels = Labels.read([(source, prefixes[source]) for source in data_sets])
    return import_corpus(documents(), data, record, chunker, labels, strict=strict, dry_run=dry_run)


def import_corpus(
    documents: Iterable[ImportedDocument | Skipped | FileNote],
    data: Path,
    record: ImportRecord,
    chunker: Chunker | None,
    labels: Labels,
    *,
    strict: bool = False,
    dry_run: bool = False,
) -> ImportResult:
    """Replace the corpus of a data set by documents, in one step, after all of them were read.

    documents: what the corpus is made of, and what was not read. labels: what is copied where the data set has no
    queries. The others are those of `import_files`. Raises InputError if there is no document, two have one id, a file
    loses words under `strict`, or the target was not made by an import.
    """
    _check_target(data)
    result = ImportResult()
    with ExitStack() as stack:
        if not dry_run:
            if not data.exists():
                stack.callback(_remove_unused, data)
            data.mkdir(parents=True, exist_ok=True)
            stack.enter_context(sole_writer(data))
        before = _digests(data / CORPUS)
        spool = stack.enter_context(_new_file(Path(os.devnull) if dry_run else data / _PARTIAL))
        after = _write_documents(documents, spool, chunker, result)
        if not after:
            raise InputError(_nothing_readable(record.sources, result.skipped))
        if strict:
            _check_words_kept(result.notes)
        result.documents = len(after)
        result.added = len(after.keys() - before.keys())
        result.removed = len(before.keys() - after.keys())
        result.changed = sum(before[each] != digest for each, digest in after.items() if each in before)
        result.kept_labels = bool(labels.queries) and stored_file(data / QUERIES).exists()
        if labels.queries and not result.kept_labels:
            result.queries, result.splits = len(labels.queries), sorted(labels.judgements)
        if not dry_run:
            atomic_write(data / RECORD, record.model_dump_json(indent=2).encode() + b"\n")
            if result.queries:
                labels.write(data)
            _publish(spool, data)
    return result


def _write_documents(
    documents: Iterable[ImportedDocument | Skipped | FileNote],
    spool: BinaryIO,
    chunker: Chunker | None,
    result: ImportResult,
) -> dict[str, bytes]:
    """Write the lines of each document, and return the SHA-256 of these by its id; counts go into `result`."""
    digests: dict[str, hashlib._Hash] = {}
    fields: set[str] = set(_OWN_FIELDS)
    passages: set[str] = set()
    whole: set[str] = set()  # documents that are not in chunks
    unread = UnreadFiles(chunker)
    for document in documents:
        if isinstance(document, Skipped):
            result.skipped.append(document)
            continue
        if isinstance(document, FileNote):
            result.notes.append(document)
            continue
        if not has_visible_text(f"{document.content.title}{document.content.text}"):
            result.skipped.append(Skipped.of(_path(document), "holds no visible text"))
            continue
        lines = replace(document, metadata=_bounded(document.metadata, fields, result)).lines(chunker)
        if document.id in passages or document.document_id in (digests if document.parent is None else whole):
            raise InputError(
                f"two documents have the id {document.id!r}; give each source's documents ids of their own"
            )
        passages.add(document.id)
        if document.parent is None:
            whole.add(document.id)
        digest = digests.setdefault(document.document_id, hashlib.sha256())
        for line in lines:
            spool.write(line)
            digest.update(line)
        result.chunks += len(lines)
        unread.add(_path(document), lines)
    unreadable = list(unread.notes())
    result.notes += unreadable
    result.files, result.unreadable_files = unread.files, len(unreadable)
    return {identifier: digest.digest() for identifier, digest in digests.items()}


def _path(document: ImportedDocument) -> str:
    """Return what names a document for people: the path of its file, else its id."""
    path = document.metadata.get("path")
    return path if isinstance(path, str) else document.document_id


def _bounded(metadata: Mapping[str, MetadataValue], fields: set[str], result: ImportResult) -> dict[str, MetadataValue]:
    """Return metadata with no more fields and strings than a corpus may have; what it loses goes into `result`.

    fields: of the documents before, to which those of this one are added.
    """
    kept: dict[str, MetadataValue] = {}
    for name, value in metadata.items():
        if name not in fields and len(fields) >= MOST_FIELDS:
            result.left_out.add(name)
            continue
        fields.add(name)
        if isinstance(value, list) and len(value) > MOST_TAGS:
            result.shortened.add(name)
        kept[name] = value[:MOST_TAGS] if isinstance(value, list) else value
    return kept


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for what becomes the corpus; it is removed unless `_publish` gives it its name."""
    if path.name == _PARTIAL:
        path.unlink(missing_ok=True)  # of an import that was killed, whose user may have been another
    with path.open("wb") as file:
        try:
            yield file
        finally:
            if path.name == _PARTIAL:
                path.unlink(missing_ok=True)


def _publish(spool: BinaryIO, data: Path) -> None:
    """Make what was written the corpus, in one step."""
    spool.flush()
    os.fchmod(spool.fileno(), 0o644)
    os.fsync(spool.fileno())
    (data / _PARTIAL).replace(data / CORPUS)
    sync_folder(data)


def _remove_unused(data: Path) -> None:
    """Remove a folder that this import made, and wrote no corpus into."""
    if not (data / CORPUS).exists():
        with suppress(OSError):
            (data / LOCK).unlink(missing_ok=True)
            data.rmdir()


def _check_names(data: Path, sources: Sequence[Path]) -> None:
    """Raise InputError where two sources have one name, or the target is a source."""
    names = [source.resolve().name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two sources are named {twice!r}, so their documents would share ids; rename one, or import the folder "
            "that holds both"
        )
    for source in sources:
        if source.is_dir() and data.resolve().is_relative_to(source.resolve()):
            raise InputError(f"{data}: lies inside {source}, and would be imported itself; choose a folder beside it")


def _check_target(data: Path) -> None:
    """Raise InputError where the target is no folder, or holds a corpus that this version has not imported."""
    if data.exists() and not data.is_dir():
        raise InputError(f"{data}: is a file; --to names a folder")
    corpus = stored_file(data / CORPUS)
    if not corpus.exists():
        return
    if not (data / RECORD).is_file():
        raise InputError(f"{data}: holds a corpus that was not imported; choose another folder, so that it is not lost")
    try:
        ImportRecord.model_validate_json((data / RECORD).read_bytes())
    except ValidationError as error:
        raise InputError(f"{data / RECORD}: written by another version of taugate; import into a new folder") from error
    if corpus.suffix == ".gz":
        raise InputError(f"{corpus}: a packed corpus is not replaced; unpack it, or import into a new folder")


def _digests(corpus: Path) -> dict[str, bytes]:
    """Return the SHA-256 of each document's lines in a corpus, by its id; empty where there is no corpus."""
    if not corpus.exists():
        return {}
    digests: dict[str, hashlib._Hash] = {}
    for _, line in read_objects(corpus):
        identifier = str(line.get("parent") or line.get("_id", ""))
        digests.setdefault(identifier, hashlib.sha256()).update(orjson.dumps(line) + b"\n")
    return {identifier: digest.digest() for identifier, digest in digests.items()}


def _check_words_kept(notes: Sequence[FileNote]) -> None:
    """Raise InputError if a file has lost words, and name the one that lost most."""
    losing = sorted((note for note in notes if note.share is not None), key=lambda note: note.share or 0.0)
    if losing:
        more = f", and {len(losing) - 1} more files lose words" if len(losing) > 1 else ""
        raise InputError(f"{losing[0].path} {losing[0].note}{more}; convert it to text, or import without --strict")


def _nothing_readable(sources: Sequence[str], skipped: Sequence[Skipped]) -> str:
    where = f"{', '.join(sources)}: holds" if sources else "the documents hold"
    if skipped:
        more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        return f"{where} nothing that can be read: {skipped[0].path} {skipped[0].reason}{more}"
    if not sources:
        return "no document was given; give one at least"
    return f"{where} no file; name a folder with txt, md, html, pdf, docx, csv, json, jsonl or parquet files"
