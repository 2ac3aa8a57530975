"""Documents of LangChain and LlamaIndex as a source. Neither package is needed: what counts is what an object has."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from taugate.errors import InputError
from taugate.ingestion.chunks import OVERLAP_TOKENS
from taugate.ingestion.chunks.chunker import Chunker
from taugate.ingestion.importers.data_sets import Labels
from taugate.ingestion.importers.documents import ImportedDocument
from taugate.ingestion.importers.importing import ImportPlan, ImportRecord, ImportResult, import_corpus
from taugate.ingestion.importers.metadata_values import metadata_value
from taugate.ingestion.importers.source_files import Skipped, document_id
from taugate.ingestion.parsed import prose_document
from taugate.retrieval.documents.store import MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text

# Metadata fields in which loaders of both packages say where a document comes from.
_SOURCE_FIELDS = ("file_path", "source", "url")
# LlamaIndex gives an object without an id a random one of this form, another at every run.
_RANDOM_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def import_documents(
    documents: Iterable[object],
    to: Path,
    *,
    encoder: Path | None,
    chunks: int | Literal["auto", "off"] = "auto",
    overlap: int = OVERLAP_TOKENS,
    dry_run: bool = False,
) -> ImportResult:
    """Make the corpus of a data set from LangChain or LlamaIndex documents, as `taugate import` makes it from files.

    A document's id is its own. Without one it is the source that its metadata names (`file_path`, `source` or `url`),
    with a number where a source has several documents, or else a digest of its text. So a second import tells which
    documents were added, changed and removed. A random id of
    LlamaIndex counts as none.

    Args:
        documents: Objects with `page_content` (LangChain), or with `get_content()` or `text` (LlamaIndex). Their
            `metadata` is kept where filters can use it: strings, numbers, booleans, dates and lists of strings; its
            `title` is the title.
        to: Folder of the data set, made where needed.
        encoder: Folder of an exported encoder, whose tokenizer counts and whose window the chunks fit, as
            `taugate.calibration.encoding.source.exported_encoder` returns it; None with `chunks="off"`.
        chunks: Size of a chunk in tokens, "auto" for 128 or the window, "off" to leave documents whole.
        overlap: Tokens that a chunk repeats from the one before.
        dry_run: Nothing is written.

    Returns:
        What was counted: `documents`, `chunks`, `added`, `changed`, `removed`, and `skipped` with a path and a reason
        each.

    Raises:
        InputError: Where nothing has text, two documents have one id, or the folder's corpus was not imported.
    """
    if encoder is None and chunks != "off":
        raise InputError('encoder: chunks need a tokenizer; give the folder of an exported encoder, or chunks="off"')
    chunker = None if encoder is None or chunks == "off" else Chunker.of(encoder, chunks, overlap)
    record = ImportRecord(
        sources=[],
        encoder="" if encoder is None else str(encoder),
        chunk_tokens=chunker.size if chunker else None,
        overlap=overlap,
    )
    return import_corpus(_documents(documents), ImportPlan(to, record, chunker, dry_run=dry_run), Labels())


def _documents(objects: Iterable[object]) -> Iterator[ImportedDocument | Skipped]:
    used: Counter[str] = Counter()
    for number, each in enumerate(objects, start=1):
        text = _text(each, number)
        given = getattr(each, "metadata", None)
        metadata = _metadata(given if isinstance(given, Mapping) else {})
        identifier = _own_id(each)
        source = next((str(found) for name in _SOURCE_FIELDS if (found := metadata.get(name))), None)
        made_up = hasattr(each, "node_id") and identifier is not None and _RANDOM_ID.fullmatch(identifier)
        if identifier is None or made_up:
            identifier = source or hashlib.sha256(text.encode()).hexdigest()[:16]
            used[identifier] += 1
            if used[identifier] > 1:
                identifier = f"{identifier}/{used[identifier]}"
        identifier = document_id(identifier)
        if not has_visible_text(text):
            yield Skipped(identifier, "holds no text")
            continue
        title = metadata.get("title")
        yield ImportedDocument(
            identifier, prose_document(text, title if isinstance(title, str) else ""), metadata, as_written=True
        )


def _text(each: object, number: int) -> str:
    """Return the text of an object.

    Args:
        number: Its place, for the message.

    Raises:
        InputError: Where it has none.
    """
    get_content = getattr(each, "get_content", None)
    for text in (getattr(each, "page_content", None), get_content() if callable(get_content) else None):
        if isinstance(text, str):
            return _utf8(text)
    text = getattr(each, "text", None)
    if not isinstance(text, str):
        raise InputError(
            f"document {number}: a {type(each).__name__} has neither page_content nor text; give documents of "
            "LangChain or LlamaIndex"
        )
    return _utf8(text)


def _own_id(each: object) -> str | None:
    """Return the id that an object has itself: `id` in LangChain, `node_id` or `id_` in LlamaIndex."""
    found = (getattr(each, name, None) for name in ("node_id", "id_", "id"))
    return next((_utf8(str(value)) for value in found if isinstance(value, str | int) and str(value).strip()), None)


def _metadata(given: Mapping[object, object]) -> dict[str, MetadataValue]:
    """Return the metadata that filters can use."""
    found = {_utf8(str(name)): metadata_value(value) for name, value in given.items()}
    return {name: value for name, value in found.items() if value is not None}


def _utf8(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
