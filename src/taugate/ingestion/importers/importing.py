"""`taugate import`: documents in, a data set's corpus out, and what has changed since the last time."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Literal
from unicodedata import normalize

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import InputError
from taugate.ingestion.chunks.chunker import Chunker
from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.lines import read_objects, stored_file
from taugate.ingestion.dataset.lock import LOCK, sole_writer
from taugate.ingestion.importers.data_sets import RECORD, Labels, documents_of_data_set, is_data_set
from taugate.ingestion.importers.documents import ImportedDocument, PassageIds
from taugate.ingestion.importers.files import documents_of_files
from taugate.ingestion.importers.source_files import FileNote, Skipped
from taugate.ingestion.importers.unread_files import UnreadFiles
from taugate.retrieval.documents.store import MAX_FIELDS, MAX_TAGS, MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import atomic_write, set_mode, sync, sync_folder
from taugate.storage.folders import make_folder

_PARTIAL = f".{CORPUS}.new"
_OWN_FIELDS = ("path", "title", "heading", "page", "created", "modified")


class ImportRecord(BaseModel):
    """What `import.json` says about how the corpus beside it was made.

    Attributes:
        schema_version: Of this file.
        sources: As they were named.
        encoder: Whose tokenizer counted.
        chunk_tokens: The size of a chunk in tokens, None where documents were left whole.
        overlap: In tokens.
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

    Attributes:
        documents: With text, of all sources.
        chunks: Lines of the corpus.
        added: Documents, compared with the corpus before.
        changed: Documents, compared with the corpus before.
        removed: Documents, compared with the corpus before.
        skipped: Files and documents that were not read.
        notes: On files that were.
        queries: How many queries came from data sets, and the splits of their judgements.
        splits: How many queries came from data sets, and the splits of their judgements.
        kept_labels: Whether those of data sets were left out, because the target has queries of its own.
        files: With text, and those of them with passages that the encoder cannot read; 0 if documents are left whole.
        unreadable_files: With text, and those of them with passages that the encoder cannot read; 0 if documents are
            left whole.
        left_out: Names of metadata fields beyond the most that a corpus may have.
        shortened: Names of those that hold more strings than a list may have.
        mixed: Names of those that hold numbers in one document and text in another.
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
    mixed: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Where a corpus goes, and how it is made.

    Attributes:
        data: Folder of the data set, made if needed.
        record: What `import.json` says afterwards.
        chunker: Divides documents, None leaves them whole.
        strict: Whether a file that loses words is an error.
        dry_run: Whether nothing is written.
    """

    data: Path
    record: ImportRecord
    chunker: Chunker | None
    strict: bool = False
    dry_run: bool = False


def import_files(
    sources: Sequence[Path], plan: ImportPlan, progress: Callable[[str], object] = lambda name: None
) -> ImportResult:
    """Read everything below the sources, and replace the corpus of a data set by it.

    Queries and qrels of the data set stay as they are. Where it has no queries, those of the sources are copied. With
    several sources, the ids of a source's documents begin with its name; those of the only data set among them do not.

    Args:
        sources: Files, folders, and data sets, which are folders that hold corpus.jsonl.
        plan: What becomes of them.
        progress: Called with a name for each file and each document of a data set.

    Raises:
        InputError: If a source is missing, nothing can be read, a file loses words under `plan.strict`, or the target
            was not made by an import, and at the first fault of a data set.
    """
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: no such file or folder; name what is to be imported")
    _check_target(plan.data)
    _check_names(plan.data, sources)
    data_sets = [source for source in sources if is_data_set(source)]
    prefixes = {source: f"{_name(source)}/" if len(sources) > 1 else "" for source in sources}
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
    return import_corpus(documents(), plan, labels)


def import_corpus(
    documents: Iterable[ImportedDocument | Skipped | FileNote], plan: ImportPlan, labels: Labels
) -> ImportResult:
    """Replace the corpus of a data set by documents, in one step, after all of them were read.

    Args:
        documents: What the corpus is made of, and what was not read.
        plan: Where the corpus goes.
        labels: What is copied if the data set has no queries.

    Raises:
        InputError: If there is no document, two have one id, a file loses words under `plan.strict`, or the target was
            not made by an import.
    """
    data = plan.data
    _check_target(data)
    result = ImportResult()
    with ExitStack() as stack:
        if not plan.dry_run:
            if not data.exists():
                stack.callback(_remove_unused, data)
            make_folder(data)
            stack.enter_context(sole_writer(data))
        before = _digests(data / CORPUS)
        spool = stack.enter_context(_new_file(Path(os.devnull) if plan.dry_run else data / _PARTIAL))
        judged = {line.document for lines in labels.judgements.values() for line in lines}
        ids = PassageIds(before.keys() | judged)
        after = _write_documents(_with_earlier_ids(documents, before), spool, plan.chunker, ids, result)
        if not after:
            raise InputError(_nothing_readable(plan.record.sources, result.skipped))
        if plan.strict:
            _check_words_kept(result.notes)
        result.documents = len(after)
        result.added = len(after.keys() - before.keys())
        result.removed = len(before.keys() - after.keys())
        result.changed = sum(before[each] != digest for each, digest in after.items() if each in before)
        result.kept_labels = bool(labels.queries) and stored_file(data / QUERIES).exists()
        if labels.queries and not result.kept_labels:
            result.queries, result.splits = len(labels.queries), sorted(labels.judgements)
        if not plan.dry_run:
            atomic_write(data / RECORD, plan.record.model_dump_json(indent=2).encode() + b"\n")
            if result.queries:
                labels.write(data)
            _publish(spool, data)
    return result


def _with_earlier_ids(
    documents: Iterable[ImportedDocument | Skipped | FileNote], before: Mapping[str, bytes]
) -> Iterator[ImportedDocument | Skipped | FileNote]:
    """Give a document of a file the id that it has in the corpus before, if the two differ in Unicode form alone.

    So judgements still fit after a folder was copied from a system that writes names in another form.
    """
    forms = {normalize("NFC", each): each for each in before}
    for document in documents:
        if isinstance(document, ImportedDocument) and not document.as_written and document.id not in before:
            earlier = forms.get(normalize("NFC", document.id), document.id)
            yield replace(document, id=earlier)
        else:
            yield document


def _write_documents(
    documents: Iterable[ImportedDocument | Skipped | FileNote],
    spool: BinaryIO,
    chunker: Chunker | None,
    ids: PassageIds,
    result: ImportResult,
) -> dict[str, bytes]:
    """Write the lines of each document, and return the SHA-256 of these by its id; counts go into `result`."""
    digests: dict[str, hashlib._Hash] = {}
    fields: dict[str, str | None] = dict.fromkeys(_OWN_FIELDS)
    unread = UnreadFiles(chunker)
    for document in documents:
        if isinstance(document, Skipped):
            result.skipped.append(document)
            continue
        if isinstance(document, FileNote):
            result.notes.append(document)
            continue
        # Empty documents of data sets come along, as judgements name them.
        if not document.as_written and not has_visible_text(f"{document.content.title}{document.content.text}"):
            result.skipped.append(Skipped.of(_path(document), "holds no visible text"))
            continue
        bounded = replace(document, metadata=_bounded(document.metadata, fields, result))
        named, lines = ids.lines(bounded, chunker)
        digest = digests.setdefault(named.document_id, hashlib.sha256())
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


def _bounded(
    metadata: Mapping[str, MetadataValue], fields: dict[str, str | None], result: ImportResult
) -> dict[str, MetadataValue]:
    """Return metadata with no more fields and strings than a corpus may have; what it loses goes into `result`.

    Args:
        fields: Of the documents before, with the kind of their values, to which those of this one are added.
    """
    kept: dict[str, MetadataValue] = {}
    for name, value in metadata.items():
        if name not in fields and len(fields) >= MAX_FIELDS:
            result.left_out.add(name)
            continue
        kind = _kind(value)
        earlier = fields.setdefault(name, kind)
        if earlier is None:
            fields[name] = kind
        elif kind not in (None, earlier):
            result.mixed.add(name)
        if isinstance(value, list) and len(value) > MAX_TAGS:
            result.shortened.add(name)
        kept[name] = value[:MAX_TAGS] if isinstance(value, list) else value
    return kept


def _kind(value: MetadataValue) -> str | None:
    """Return which filters fit a value: those on numbers, on text, or on booleans; None if it is missing."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "text"


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
    set_mode(spool.fileno(), 0o644)
    sync(spool.fileno())
    (data / _PARTIAL).replace(data / CORPUS)
    sync_folder(data)


def _remove_unused(data: Path) -> None:
    """Remove a folder that this import made, and wrote no corpus into."""
    if not (data / CORPUS).exists():
        with suppress(OSError):
            (data / LOCK).unlink(missing_ok=True)
            data.rmdir()


def _name(source: Path) -> str:
    """Return the name of a source, in the Unicode form of ids."""
    return normalize("NFC", source.resolve().name)


def _check_names(data: Path, sources: Sequence[Path]) -> None:
    """Raise InputError where two sources have one name, or the target is a source."""
    names = [_name(source) for source in sources]
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
    return f"{where} no file; name a folder with texts, web pages, PDF, office files, mails, tables or source code"
