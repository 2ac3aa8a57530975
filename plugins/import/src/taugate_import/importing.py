"""`taugate import`: turns documents into a data set's corpus, and counts the changes since the last import."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from unicodedata import normalize

from taugate.data.corpus import CORPUS
from taugate.data.lines import stored_file
from taugate.data.queries import QUERIES, sole_writer
from taugate.errors import InputError
from taugate.retrieval.documents.store import MAX_FIELDS, MAX_TAGS, MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import atomic_write
from taugate.storage.folders import make_folder
from taugate_import.chunker import Chunker, ImportedDocument, PassageIds
from taugate_import.files import ALSO, Copies, FileNote, Skipped, UnreadFiles, documents_of_files
from taugate_import.target import (
    PARTIAL,
    RECORD,
    ImportRecord,
    SourceQueries,
    check_import_target,
    check_names,
    document_digests,
    documents_of_data_set,
    is_data_set,
    new_corpus,
    publish_corpus,
    remove_unused,
    source_name,
    time_of_last_import,
)

# Metadata fields that an import sets itself; they count towards MAX_FIELDS.
_OWN_FIELDS = ("path", "title", "heading", "page", "created", "modified", ALSO)


@dataclass
class ImportResult:
    """Result of an import.

    Attributes:
        kept_labels: Whether the target has queries of its own, so that those of the sources were not copied.
        unreadable_files: Number of files with passages that the encoder cannot read; 0 if documents are left whole.
        mixed: Names of metadata fields that hold numbers in one document and text in another.
        reread: Number of documents of unchanged files that this version reads differently from the one before.
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
    copies: int = 0
    reread: int = 0


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Target and settings of an import."""

    data: Path
    record: ImportRecord
    chunker: Chunker | None
    strict: bool = False
    dry_run: bool = False


def import_files(
    sources: Sequence[Path], plan: ImportPlan, progress: Callable[[str], object] = lambda name: None
) -> ImportResult:
    """Read everything below the sources, and make it the corpus of a data set.

    Queries and qrels of the data set are kept. If it has no queries, those of the sources are copied. With several
    sources, document ids begin with the name of their source; but if only one source is a data set, its ids are kept.

    Args:
        progress: Called with a name for each file and each document of a data set.
    """
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: no such file or folder; name files or folders to import")
    check_import_target(plan.data)
    check_names(plan.data, sources)
    data_sets = [source for source in sources if is_data_set(source)]
    prefixes = {source: f"{source_name(source)}/" if len(sources) > 1 else "" for source in sources}
    if len(data_sets) == 1:
        prefixes[data_sets[0]] = ""

    def documents() -> Iterator[ImportedDocument | Skipped | FileNote]:
        for are_data_sets, group in groupby(sources, key=data_sets.__contains__):
            named = [(source, prefixes[source]) for source in group]
            if not are_data_sets:
                yield from documents_of_files(named, progress)
                continue
            for source, prefix in named:
                for document in documents_of_data_set(source, prefix):
                    progress(source.name)
                    yield document

    queries = SourceQueries.read([(source, prefixes[source]) for source in data_sets])
    return import_corpus(documents(), plan, queries)


def import_corpus(
    documents: Iterable[ImportedDocument | Skipped | FileNote], plan: ImportPlan, queries: SourceQueries
) -> ImportResult:
    """Make documents the corpus of a data set, in one step, after all of them have been read."""
    data = plan.data
    check_import_target(data)
    result = ImportResult()
    with ExitStack() as stack:
        if not plan.dry_run:
            if not data.exists():
                stack.callback(remove_unused, data)
            make_folder(data)
            stack.enter_context(sole_writer(data))
        before = document_digests(data / CORPUS)
        all_lines = stack.enter_context(TemporaryFile(dir=None if plan.dry_run else data))
        spool = stack.enter_context(new_corpus(Path(os.devnull) if plan.dry_run else data / PARTIAL))
        judged, judged_before = (
            {line.document for lines in source.judgements.values() for line in lines}
            for source in (queries, SourceQueries.read([(data, "")]))
        )
        ids = PassageIds(before.keys() | judged)
        copies = Copies(before, judged_before)
        unchanged = _write_documents(_with_earlier_ids(documents, before), all_lines, plan, ids, copies, result)
        after = _write_corpus(all_lines, spool, copies, result)
        if not after:
            raise InputError(_nothing_readable(plan.record.sources, result.skipped))
        if plan.strict:
            _check_words_kept(result.notes)
        result.documents = len(after)
        result.added = len(after.keys() - before.keys())
        result.removed = len(before.keys() - after.keys())
        changed = {name for name, digest in after.items() if name in before and before[name] != digest}
        result.changed, result.reread = len(changed), len(changed & unchanged)
        result.kept_labels = bool(queries.queries) and stored_file(data / QUERIES).exists()
        if queries.queries and not result.kept_labels:
            result.queries, result.splits = len(queries.queries), sorted(queries.judgements)
        if not plan.dry_run:
            record = plan.record.model_copy(update={"version": version("taugate")})
            atomic_write(data / RECORD, record.model_dump_json(indent=2).encode() + b"\n")
            if result.queries:
                queries.write(data)
            publish_corpus(spool, data)
    return result


def _with_earlier_ids(
    documents: Iterable[ImportedDocument | Skipped | FileNote], before: Mapping[str, bytes]
) -> Iterator[ImportedDocument | Skipped | FileNote]:
    """Keep a file's id of the previous corpus if its name now differs only in Unicode normalization form.

    Judgements then still match after a folder is copied from a system that writes names in another form.
    """
    forms = {normalize("NFC", identifier): identifier for identifier in before}
    for document in documents:
        if isinstance(document, ImportedDocument) and not document.as_written and document.id not in before:
            earlier = forms.get(normalize("NFC", document.id), document.id)
            yield replace(document, id=earlier)
        else:
            yield document


def _write_documents(
    documents: Iterable[ImportedDocument | Skipped | FileNote],
    lines_of_all: BinaryIO,
    plan: ImportPlan,
    ids: PassageIds,
    copies: Copies,
    result: ImportResult,
) -> set[str]:
    """Write the lines of each document, and return the ids of those whose files have not changed since the last import.

    Notes are added to `result`, and documents of files to `copies`.
    """
    unchanged: set[str] = set()
    since = time_of_last_import(plan.data, plan.record)
    fields: dict[str, str | None] = dict.fromkeys(_OWN_FIELDS)
    unread = UnreadFiles(plan.chunker)
    for document in documents:
        if isinstance(document, Skipped):
            result.skipped.append(document)
            continue
        if isinstance(document, FileNote):
            result.notes.append(document)
            continue
        # Empty documents of data sets are kept, because judgements may name them.
        if not document.as_written and not has_visible_text(f"{document.content.title}{document.content.text}"):
            result.skipped.append(Skipped.of(_path(document), "holds no visible text"))
            continue
        bounded = replace(document, metadata=_bounded(document.metadata, fields, result))
        named, lines = ids.lines(bounded, plan.chunker)
        lines_of_all.writelines(lines)
        if not named.as_written:
            copies.add(_path(document), named)
        if named.changed_at < since:
            unchanged.add(named.id)
        unread.add(_path(document), lines)
    unreadable = list(unread.notes())
    result.notes += unreadable
    result.files, result.unreadable_files = unread.files, len(unreadable)
    return unchanged


def _write_corpus(all_lines: BinaryIO, corpus: BinaryIO, copies: Copies, result: ImportResult) -> dict[str, bytes]:
    """Write the lines of the corpus, without copies, and return their SHA-256 by document id."""
    digests: dict[str, hashlib._Hash] = {}
    copied = copies.found()
    all_lines.seek(0)
    for name, line in copies.corpus(all_lines, copied):
        corpus.write(line)
        digests.setdefault(name, hashlib.sha256()).update(line)
        result.chunks += 1
    result.copies = sum(map(len, copied.values()))
    return {identifier: digest.digest() for identifier, digest in digests.items()}


def _path(document: ImportedDocument) -> str:
    """Return the name of a document in messages: the path of its file, else its id."""
    path = document.metadata.get("path")
    return path if isinstance(path, str) else document.document_id


def _bounded(
    metadata: Mapping[str, MetadataValue], fields: dict[str, str | None], result: ImportResult
) -> dict[str, MetadataValue]:
    """Return metadata within the limits of a corpus; losses are recorded in `result`.

    Args:
        fields: Fields of earlier documents, with the kind of their values; those of this one are added.
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
    """Return the kind of filter that applies to a value: number, text or boolean; None if it is missing."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "text"


def _check_words_kept(notes: Sequence[FileNote]) -> None:
    """Check that no file has lost words."""
    losing = sorted((note for note in notes if note.share is not None), key=lambda note: note.share or 0.0)
    if losing:
        further = len(losing) - 1
        other_files = f", and {further} more {'file loses' if further == 1 else 'files lose'} words" if further else ""
        raise InputError(
            f"{losing[0].path} {losing[0].note}{other_files}; convert it to text, or import without --strict"
        )


def _nothing_readable(sources: Sequence[str], skipped: Sequence[Skipped]) -> str:
    subject = f"{', '.join(sources)}: holds" if sources else "the documents hold"
    if skipped:
        other_files = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        return f"{subject} nothing that can be read: {skipped[0].path} {skipped[0].reason}{other_files}"
    if not sources:
        return "no documents; give at least one"
    return f"{subject} no file; name a folder with texts, web pages, PDF, office files, emails, tables or source code"
