"""Files of records: CSV, JSON, JSON Lines and Parquet. Each record is a document of its own."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from taugate.ingestion.importers.metadata_values import metadata_value
from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

_TEXT_FIELDS = ("text", "content", "body", "page_content")
_ID_FIELDS = ("_id", "id")
csv.field_size_limit(1 << 26)  # the default, 128 KiB, is less than a long article


def parse_csv(raw: bytes, dialect: Any = None) -> ParsedFile:  # noqa: ANN401 (csv has no one type for it)
    """Read one document per row; the first row names the columns. raw: the file's bytes. Raises UnreadableFile."""
    decoded = decode_text(raw)
    text = decoded.text
    try:
        dialect = dialect or csv.Sniffer().sniff(text[: 1 << 16], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, restkey="more"))
    except csv.Error as error:
        raise UnreadableFile(f"is not CSV: {error}") from error
    return ParsedFile(records_to_documents(rows), text, decoded.notes)


def parse_json(raw: bytes) -> ParsedFile:
    """Read a JSON array of objects, an object that holds one such array, or one object. raw: the file's bytes."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UnreadableFile(f"is not JSON: {error.msg} on line {error.lineno}") from error
    if isinstance(value, dict):
        arrays = [each for each in value.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
        value = arrays[0] if len(arrays) == 1 else [value]
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UnreadableFile("holds no JSON object; write an array of objects")
    return ParsedFile(records_to_documents(value), "")


def parse_json_lines(raw: bytes) -> ParsedFile:
    """Read one JSON object a line; empty lines are passed over. raw: the file's bytes. Raises UnreadableFile."""
    return ParsedFile(records_to_documents(_objects(raw)), "")


def _objects(raw: bytes) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UnreadableFile(f"line {number} is not JSON: {error.msg}") from error
        if not isinstance(value, dict):
            raise UnreadableFile(f"line {number} is not a JSON object")
        yield value


def parse_parquet(raw: bytes) -> ParsedFile:
    """Read one document a row. raw: the file's bytes. Raises UnreadableFile."""
    from pyarrow import ArrowException, BufferReader
    from pyarrow.parquet import ParquetFile

    try:
        rows = [row for batch in ParquetFile(BufferReader(raw)).iter_batches(4096) for row in batch.to_pylist()]
    except (ArrowException, OSError) as error:
        raise UnreadableFile("is not Parquet, or a damaged file") from error
    return ParsedFile(records_to_documents(rows), "")


def records_to_documents(records: Iterable[Mapping[str, Any]]) -> list[ParsedDocument]:
    """Turn records into documents.

    The text is that of the field `text`, `content`, `body` or `page_content`; without one of these it is every field
    that is not empty, one a line with its name. `title` is the title; other scalars and lists of strings are metadata.
    The key is the field `_id` or `id` where each record has its own, else the record's number, from 1.

    records: by field. Records without any text are left out. Raises UnreadableFile where none has text.
    """
    rows = list(records)
    key_field = next((name for name in _ID_FIELDS if _is_unique(name, rows)), None)
    documents = []
    for number, row in enumerate(rows, start=1):
        builder = TextBuilder()
        text_field = next((name for name in _TEXT_FIELDS if isinstance(row.get(name), str) and row[name].strip()), None)
        if text_field:
            builder.add(str(row[text_field]).replace("\r\n", "\n"), "prose")
        else:
            filled = {name: metadata_value(value) for name, value in row.items() if name not in _ID_FIELDS}
            lines = [f"{name}: {_shown(value)}" for name, value in filled.items() if value not in (None, "")]
            builder.add("\n".join(lines), "prose")
        nested = row.get("metadata")
        given: Mapping[str, Any] = nested if isinstance(nested, dict) else {}
        named = {**row, **given} if text_field else dict(given)
        used = {*_TEXT_FIELDS, *_ID_FIELDS, "title", "metadata"}
        metadata = {
            str(name): found
            for name, value in named.items()
            if name not in used and (found := metadata_value(value)) is not None
        }
        title = row.get("title") if text_field and isinstance(row.get("title"), str) else ""
        key = str(row[key_field]) if key_field else str(number)
        documents.append(builder.document(str(title).strip(), key, metadata))
    documents = [document for document in documents if document.text]
    if not documents:
        raise UnreadableFile("holds no record with text")
    return documents


def _shown(value: MetadataValue) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _is_unique(name: str, rows: list[Mapping[str, Any]]) -> bool:
    values = [row.get(name) for row in rows]
    usable = all(isinstance(value, str | int) and not isinstance(value, bool) and value != "" for value in values)
    printable = usable and all(str(value).isprintable() for value in values)  # others cannot stand in qrels
    return printable and len({str(value) for value in values}) == len(rows)
