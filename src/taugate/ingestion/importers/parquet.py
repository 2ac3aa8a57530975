"""Parquet to documents, one per row; nested columns are read as in JSON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from taugate.ingestion.importers.nested import MAX_LISTED_NUMBERS, Fields, left_out_fields
from taugate.ingestion.importers.records import records_to_documents
from taugate.ingestion.parsed import ParsedFile, UnreadableFile

if TYPE_CHECKING:
    from pyarrow import Array, Table


def parse_parquet(raw: bytes) -> ParsedFile:
    """Read one document per row.

    Raises:
        UnreadableFile: If the file is damaged or holds no text.
    """
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
