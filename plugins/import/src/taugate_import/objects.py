"""Documents of LangChain and LlamaIndex as a source, without a dependency on either package."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from taugate.data.parsed import prose_document
from taugate.errors import InputError
from taugate.retrieval.documents.store import MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate_import import OVERLAP_TOKENS
from taugate_import.chunker import Chunker, ImportedDocument
from taugate_import.files import Skipped, document_id
from taugate_import.importing import ImportPlan, ImportResult, import_corpus
from taugate_import.target import ImportRecord, SourceQueries
from taugate_import.values import metadata_value

# Metadata fields in which loaders of both packages name the source of a document.
_SOURCE_FIELDS = ("file_path", "source", "url")
# LlamaIndex gives objects without an id a random one of this form, which differs at every run.
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

    A document's id is its own. Without one it is the source named in its metadata (`file_path`, `source` or `url`),
    with a number if a source has several documents, or else a digest of its text. So a repeated import can tell which
    documents were added, changed and removed. Random ids of LlamaIndex are ignored.

    Args:
        documents: Objects with `page_content` (LangChain), or with `get_content()` or `text` (LlamaIndex). Their
            `metadata` is kept if filters can use it: strings, numbers, booleans, dates and lists of strings; its
            `title` is the title.
        encoder: Folder of an exported encoder, as returned by
            `taugate.calibration.encoding.source.exported_encoder`: its tokenizer counts, and chunks fit its window.
            None with `chunks="off"`.
        chunks: Maximum size of a chunk in tokens, "auto" for 128 or the window, "off" to leave documents whole.
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
    return import_corpus(_documents(documents), ImportPlan(to, record, chunker, dry_run=dry_run), SourceQueries())


def _documents(objects: Iterable[object]) -> Iterator[ImportedDocument | Skipped]:
    used: Counter[str] = Counter()
    for number, document in enumerate(objects, start=1):
        text = _text(document, number)
        attributes = getattr(document, "metadata", None)
        metadata = _metadata(attributes if isinstance(attributes, Mapping) else {})
        identifier = _own_id(document)
        source = next((str(value) for name in _SOURCE_FIELDS if (value := metadata.get(name))), None)
        is_random = hasattr(document, "node_id") and identifier is not None and _RANDOM_ID.fullmatch(identifier)
        if identifier is None or is_random:
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


def _text(document: object, number: int) -> str:
    """Return the text of a document."""
    get_content = getattr(document, "get_content", None)
    for text in (getattr(document, "page_content", None), get_content() if callable(get_content) else None):
        if isinstance(text, str):
            return _utf8(text)
    text = getattr(document, "text", None)
    if not isinstance(text, str):
        raise InputError(
            f"document {number}: a {type(document).__name__} has neither page_content nor text; give documents of "
            "LangChain or LlamaIndex"
        )
    return _utf8(text)


def _own_id(document: object) -> str | None:
    """Return the id of a document itself: `id` in LangChain, `node_id` or `id_` in LlamaIndex."""
    candidates = (getattr(document, name, None) for name in ("node_id", "id_", "id"))
    return next(
        (_utf8(str(value)) for value in candidates if isinstance(value, str | int) and str(value).strip()), None
    )


def _metadata(attributes: Mapping[object, object]) -> dict[str, MetadataValue]:
    """Return the metadata that filters can use."""
    values = {_utf8(str(name)): metadata_value(value) for name, value in attributes.items()}
    return {name: value for name, value in values.items() if value is not None}


def _utf8(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
