"""Documents of a data set: the file corpus.jsonl."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from taugate.data.judgements import CorpusIds
from taugate.data.lines import LineError, read_objects, required_id, required_text
from taugate.errors import InputError
from taugate.retrieval.documents.store import MAX_FIELDS, MAX_TAGS, Document, DocumentWriter, MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import Json

CORPUS = "corpus.jsonl"


def read_corpus(path: Path, ids: CorpusIds) -> Iterator[Document]:
    """Yield the documents of a corpus in the order of the file, without those that have neither title nor text."""
    for document in read_lines_of_corpus(path, ids):
        if document.text:
            yield document


def read_lines_of_corpus(path: Path, ids: CorpusIds) -> Iterator[Document]:
    """Yield all documents of a corpus; without title and text, a document has the text "" and no position."""
    fields: set[str] = set()
    for line, record in read_objects(path):
        identifier = required_id(path, line, record, ids.passages)
        text, title = text_and_title(path, line, record)
        metadata = _metadata(path, line, record, fields)
        parent, span = _origin_of_chunk(path, line, record)
        if not text:
            del ids.passages[identifier]
            ids.empty.add(identifier)
        elif parent is not None:
            ids.documents.setdefault(parent, ids.passages[identifier])
        yield Document(identifier, text, title, metadata, parent, span)
    if not ids.passages:
        raise InputError(f"{path}: holds no document; write one JSON object per line")


def spool_corpus(path: Path, spool: Path) -> CorpusIds:
    """Copy the documents of a corpus to an empty folder, in their order, and return their ids."""
    ids = CorpusIds()
    try:
        writer = DocumentWriter(spool)
        try:
            for document in read_corpus(path, ids):
                writer.append(document)
        finally:
            writer.close()
    except OSError as error:  # from writing the copy: a corpus that cannot be read is an InputError
        raise OSError(
            f"{spool}: the documents cannot be copied there ({error.strerror or error}); free some space, or name "
            "another folder in TMPDIR"
        ) from error
    return ids


def text_and_title(path: Path, line: int, record: dict[str, Json]) -> tuple[str, str | None]:
    """Return text and title of a document. A title without a text becomes the text; without either, the text is ""."""
    # Public data sets have both kinds (BEIR's FiQA, TREC-COVID). The parameters are those of `required_text`.
    title = _title(path, line, record)
    text = record.get("text")
    if "text" not in record or (text is not None and not isinstance(text, str)) or (text and has_visible_text(text)):
        return required_text(path, line, record, "text"), title
    return (title, None) if title and has_visible_text(title) else ("", None)


def _title(path: Path, line: int, record: dict[str, Json]) -> str | None:
    title = record.get("title")
    if title is not None and not isinstance(title, str):
        raise LineError(path, line, '"title" is not a string', "put it in quotes or leave it out")
    return title or None


def _origin_of_chunk(path: Path, line: int, record: dict[str, Json]) -> tuple[str | None, tuple[int, int] | None]:
    """Return the parent and the span of a chunk; both None for a whole document."""
    parent, span = record.get("parent"), record.get("span")
    if parent is None:
        return None, None
    if type(parent) is int:  # as ids may be
        parent = str(parent)
    if not isinstance(parent, str) or not parent:
        raise LineError(path, line, '"parent" is not the id of a document', "put it in quotes or leave it out")
    if span is None:
        return parent, None
    if not isinstance(span, list) or len(span) != 2 or not all(type(place) is int for place in span):
        raise LineError(
            path, line, '"span" is not [start, end] in characters', "give two whole numbers or leave it out"
        )
    start, end = cast("list[int]", span)
    if not 0 <= start <= end:
        raise LineError(path, line, f'"span" [{start}, {end}] ends before it starts', "correct it or leave it out")
    return parent, (start, end)


def _metadata(path: Path, line: int, record: dict[str, Json], fields: set[str]) -> dict[str, MetadataValue]:
    """Return the metadata of a record, and add its field names to `fields`, which holds those of earlier records."""
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise LineError(path, line, '"metadata" is not an object', 'write {"field": value}')
    for name, value in metadata.items():
        if isinstance(value, list):
            if not all(isinstance(tag, str) for tag in value):
                raise LineError(path, line, f"metadata {name!r} is a list with more than strings", "put each in quotes")
            if len(value) > MAX_TAGS:
                raise LineError(path, line, f"metadata {name!r} lists {len(value)} strings", f"give {MAX_TAGS} at most")
        elif isinstance(value, dict) or (isinstance(value, float) and not math.isfinite(value)):
            problem = f"metadata {name!r} is neither a scalar nor a list"
            raise LineError(path, line, problem, "use a string, number, boolean, null or list of strings")
        if value is not None:
            fields.add(name)
    if len(fields) > MAX_FIELDS:
        raise LineError(
            path, line, f"metadata has over {MAX_FIELDS} field names so far", "put varying parts into values, not names"
        )
    return cast("dict[str, MetadataValue]", metadata)
