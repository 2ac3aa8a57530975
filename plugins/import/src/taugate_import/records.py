"""Records to documents: rows of a table or a Parquet file, objects of a JSON file, and other fields with values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taugate.data.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.markdown import parse_markdown
from taugate_import.values import (
    MAX_LISTED_NUMBERS,
    Fields,
    Leaf,
    leaves_of,
    left_out_fields,
    own_text_of,
    scalar_of,
    text_of,
    value_text,
)

if TYPE_CHECKING:
    from pyarrow import Array, Table


class MarkdownText(str):
    """A string of a record that is Markdown, for example one that was HTML."""

    __slots__ = ()


TEXT_FIELDS = ("text", "content", "body", "page_content")
ID_FIELDS = ("_id", "id")
# Fields that only wrap the record: of Elasticsearch, JSON:API and Strapi, Contentful, GeoJSON, GraphQL.
_ENVELOPES = ("_source", "attributes", "fields", "properties", "node", "document")
_MAX_FACT = 200  # characters of a string that is metadata beside a text; a longer one is text
_MAX_VALUE = 100  # characters of a string that is metadata as well as text
_MAX_VALUES = 128  # fields that become metadata in a record without a text field; one with more is not a row of a table


def records_to_documents(records: Iterable[Fields], title: str = "") -> list[ParsedDocument]:
    """Turn records into documents.

    The text is that of the field `text`, `content`, `body` or `page_content`; without one of these it is every field
    that is not empty, one per line with its name. `title` is the title; other scalars and lists of strings are
    metadata. Long strings, and strings in lists of records, are lines of the text with the path that leads to them. The
    key is the field `_id` or `id` if it is unique, else the record's number, from 1.
    """
    rows = [_without_envelope(record) for record in records]
    key_field = next((name for name in ID_FIELDS if _is_unique(name, rows)), None)
    documents = []
    for number, row in enumerate(rows, start=1):
        key = str(row[key_field]) if key_field else str(number)
        fields = {name: value for name, value in row.items() if name != key_field}
        text_field = text_field_of(row)
        documents.append(_with_text(fields, key, text_field) if text_field else _without_text(fields, key))
    documents = [document for document in documents if document.text]
    if not documents:
        raise UnreadableFile("holds no record with text")
    return [document if document.title or not title else replace(document, title=title) for document in documents]


def text_field_of(record: Fields) -> str | None:
    """Return the name of the field that holds a record's text, None if it has none."""
    return next((name for name in TEXT_FIELDS if name in record and (own_text_of(record[name]) or "").strip()), None)


def _without_envelope(record: Fields) -> Fields:
    """Return a record whose text is in a field such as `_source` with the fields inside it."""
    if text_field_of(record):
        return record
    for envelope in _ENVELOPES:
        inner = record.get(envelope)
        if isinstance(inner, Mapping) and text_field_of(inner):
            outer = {name: value for name, value in record.items() if name != envelope}
            both = outer.keys() & inner.keys()
            return outer | {f"{envelope}.{name}" if name in both else name: value for name, value in inner.items()}
    return record


def _with_text(record: Fields, key: str, text_field: str) -> ParsedDocument:
    """Return the document of a record that has a text field."""
    builder = TextBuilder()
    _add_text(builder, record[text_field])
    title = _title(record.get("title"))
    metadata: dict[str, MetadataValue] = {}
    lines = _Lines(builder)
    for leaf in _facts(record, {text_field, "title"} if title else {text_field}):
        if leaf.listed and isinstance(leaf.value, bool):
            continue  # a flag of a nested record: neither words nor a value for filters
        if leaf.path in metadata or (leaf.listed and not _is_link(leaf.value)) or len(leaf.text) > _MAX_FACT:
            lines.add(leaf)
        elif leaf.listed:
            lines.links.setdefault(leaf.path, []).append(str(leaf.value))
        elif isinstance(leaf.value, list) or leaf.value != "" or leaf.path in record:
            metadata[leaf.path] = leaf.value
            if leaf.shows_more:
                lines.add(leaf)
    lines.flush()
    return builder.document(title, key, metadata | {name: [*dict.fromkeys(urls)] for name, urls in lines.links.items()})


def _facts(record: Fields, used: set[str]) -> Iterator[Leaf]:
    """Yield the values of a record besides its text; the fields of `metadata` count as its own."""
    metadata = record.get("metadata")
    nested: Fields = metadata if isinstance(metadata, Mapping) else {}
    for name, value in {**record, **nested}.items():
        if name in used or (name == "metadata" and nested):
            continue
        if value == "":
            yield Leaf(name, "")
        yield from leaves_of({name: value})
    yield from leaves_of({name: value for name, value in nested.items() if name in used}, "metadata")


def _without_text(record: Fields, key: str) -> ParsedDocument:
    """Return the document of a record without a text field: everything is text, and short values are also metadata."""
    builder = TextBuilder()
    record_leaves = list(leaves_of(record))
    title = _title(record.get("title")) if any(leaf.listed or "." in leaf.path for leaf in record_leaves) else ""
    lines = _Lines(builder)
    for leaf in record_leaves:
        if not (title and leaf.path == "title"):
            lines.add(leaf)
    lines.flush()
    used = {"title"} if title else set()
    facts = {leaf.path: leaf.value for leaf in record_leaves if not leaf.listed and _is_short(leaf.value)}
    facts = {name: value for name, value in facts.items() if name not in used and value is not None}
    metadata = facts if len(facts) <= _MAX_VALUES else {}
    if not builder.document("").text and title:
        builder.add(title, "prose")
    return builder.document(title, key, metadata)


class _Lines:
    """Collects the lines `path: value` of a document; each record of a nested list begins a new paragraph."""

    def __init__(self, builder: TextBuilder) -> None:
        self.links: dict[str, list[str]] = {}
        self._builder = builder
        self._lines: list[str] = []

    def add(self, leaf: Leaf) -> None:
        """Add the line of a leaf."""
        if not leaf.text.strip():
            return
        if leaf.first:
            self.flush()
        self._lines.append(f"{leaf.path}: {leaf.text}")

    def flush(self) -> None:
        """End the paragraph."""
        self._builder.add("\n".join(self._lines), "prose")
        self._lines.clear()


def _add_text(builder: TextBuilder, value: object) -> None:
    """Add the text of a record; Markdown is divided at its headings, tables and code."""
    source = value.get("rendered") if isinstance(value, Mapping) else value
    if isinstance(source, MarkdownText):
        for block in (parsed := parse_markdown(f"\n{source}")).blocks:  # the leading line break prevents front matter
            builder.add(parsed.text[block.start : block.end], block.kind, block.headings)
    else:
        for paragraph in (own_text_of(value) or "").split("\n\n"):
            builder.add(paragraph, "prose")


def _title(value: object) -> str:
    """Return the title of a record on one line, or ""."""
    text = text_of(value)
    if text is None and not isinstance(value, Mapping | list):
        text = value_text(scalar) if (scalar := scalar_of(value)) is not None else ""
    return (text or "").strip()


def _is_link(value: MetadataValue) -> bool:
    return isinstance(value, str) and value.startswith(("https://", "http://")) and len(value.split()) == 1


def _is_short(value: MetadataValue) -> bool:
    strings = value if isinstance(value, list) else [value]
    return all(
        not isinstance(string, str) or (0 < len(string) <= _MAX_VALUE and "\n" not in string) for string in strings
    )


def _is_unique(name: str, rows: list[Fields]) -> bool:
    values = [row.get(name) for row in rows]
    usable = all(isinstance(value, str | int) and not isinstance(value, bool) and value != "" for value in values)
    printable = usable and all(str(value).isprintable() for value in values)  # qrels cannot hold other ids
    return printable and len({str(value) for value in values}) == len(rows)


def parse_parquet(raw: bytes) -> ParsedFile:
    """Read one document per row."""
    from pyarrow import ArrowException, BufferReader
    from pyarrow.parquet import read_table

    try:
        table = read_table(BufferReader(raw), use_threads=False)
        rows: list[Fields] = table.to_pylist(maps_as_pydicts="lossy")
    except (ArrowException, OSError, ValueError) as error:
        raise UnreadableFile("is not Parquet, or is damaged") from error
    left_out = left_out_fields(rows)
    notes = (f"leaves out lists of numbers and bytes: {', '.join(left_out)}",) if left_out else ()
    return ParsedFile(records_to_documents(rows), "\n".join(_words(table)), notes)


def _words(table: "Table") -> Iterator[str]:
    """Yield every string and number of a table, column by column, without vectors."""
    for column in table.columns:
        for chunk in column.chunks:
            yield from _words_of(chunk)


def _words_of(array: "Array[Any]") -> Iterator[str]:
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        yield from _words_of(array.dictionary_decode())
    elif types.is_struct(kind):
        for child in array.flatten():
            yield from _words_of(child)
    elif types.is_map(kind):
        yield from _words_of(array.items)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = array.flatten()
        vectors = len(items) > MAX_LISTED_NUMBERS * max(len(array) - array.null_count, 1)
        if not (vectors and types.is_primitive(items.type)):
            yield from _words_of(items)
    elif not types.is_boolean(kind) and not types.is_null(kind):
        yield from (_word(value) for value in array.to_pylist() if value is not None)


def _word(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "ignore") if value.isascii() else ""
    return "" if value != value else str(value)  # noqa: PLR0124 (NaN: a missing number)
