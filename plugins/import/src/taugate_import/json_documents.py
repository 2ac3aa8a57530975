"""JSON and JSON Lines to documents: finds the objects of a file that are its documents."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from taugate.data.parsed import ParsedDocument, ParsedFile
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.json_text import JsonReader, decode_json, not_json, words_of_json
from taugate_import.records import TEXT_FIELDS, records_to_documents, text_field_of
from taugate_import.rich_text import is_rich_text
from taugate_import.table_rows import rows_to_documents
from taugate_import.values import Fields, Value, leaves_of, left_out_fields

_MIN_SHARE = 0.5  # of a file's characters within records, for the records to be the documents
_MIN_ALIKE = 0.5  # share of objects by id that have a field in common
_MAX_FACTS = (
    20  # short values around the records that become metadata of each; if there are more, they become a document
)
_MAX_FACT = 100  # characters of one
_MAX_NAMED = 10  # lines or fields that a note names


@dataclass(frozen=True, slots=True)
class _Records:
    """Objects of one array or object."""

    path: tuple[str, ...]
    objects: Sequence[Any]
    keys: Sequence[str] | None = None


def parse_json(raw: bytes) -> ParsedFile:
    """Read JSON: an array, objects by id, or objects at any depth of another object give a document each.

    Values around these objects become metadata of each, or a document of their own if they are longer. Any other value
    is one document. A sequence of values is read as JSON Lines.
    """
    decoded, reader = decode_json(raw), JsonReader()
    try:
        values = list(reader.values(decoded.text))
    except json.JSONDecodeError as error:
        if len(decoded.text[: error.pos].strip()) and _looks_like_lines(decoded.text):
            return parse_json_lines(raw)
        raise not_json(error) from error
    return _parsed(values, reader, decoded.text, decoded.notes)


def parse_json_lines(raw: bytes) -> ParsedFile:
    """Read one JSON value per line; empty lines are skipped, and lines that are not JSON are reported."""
    decoded, reader = decode_json(raw), JsonReader()
    values: list[Any] = []
    broken: list[tuple[int, json.JSONDecodeError]] = []
    for number, line in enumerate(decoded.text.split("\n"), start=1):
        try:
            values += reader.values(line)
        except json.JSONDecodeError as error:
            broken.append((number, error))
    if broken:
        try:
            values = list(reader.values(decoded.text))  # objects that span lines
            broken = []
        except json.JSONDecodeError as error:
            if len(broken) > len(values):
                number, first = broken[0]
                raise not_json(first, number) from error
    return _parsed(values, reader, decoded.text, (*decoded.notes, *_broken_note([number for number, _ in broken])))


def _broken_note(numbers: Sequence[int]) -> Iterator[str]:
    if numbers:
        remainder = f" and {len(numbers) - _MAX_NAMED:,} more" if len(numbers) > _MAX_NAMED else ""
        verb, plural = ("line is", "") if len(numbers) == 1 else ("lines are", "s")
        named = ", ".join(map(str, numbers[:_MAX_NAMED]))
        yield f"{len(numbers):,} {verb} not JSON and left out: line{plural} {named}{remainder}"


def _looks_like_lines(text: str) -> bool:
    """Return whether most lines of a text begin and end like an object of their own."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    objects = sum(line[0] == "{" and line[-1] == "}" for line in lines)
    return len(lines) > 1 and 2 * objects > len(lines)


def _parsed(values: list[Any], reader: JsonReader, text: str, notes: Sequence[str]) -> ParsedFile:
    value = values[0] if len(values) == 1 else values
    documents = _documents(value)
    notes = [*notes]
    if reader.repeated:
        notes.append(f"repeats names within an object; all values are kept: {_listed([*reader.repeated])}")
    if left_out := left_out_fields(value if _all_objects(value) else [{"": value}]):
        notes.append(f"leaves out long lists of numbers: {_listed([name or '(the file)' for name in left_out])}")
    del value
    values.clear()  # a large file and its values together take too much memory
    return ParsedFile(documents, words_of_json(text), tuple(notes))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (" …" if len(names) > _MAX_NAMED else "")


def _documents(value: Any) -> list[ParsedDocument]:  # noqa: ANN401 (any value of JSON)
    if isinstance(value, list):
        return _documents_of_array(value)
    if not isinstance(value, Mapping):
        return records_to_documents([_record(value)])
    if not value or is_rich_text(value):
        return records_to_documents([{"text": value}])
    if columns := _rows_of_columns(value):
        return records_to_documents(columns)
    collections = [_Records((), [*value.values()], [*value])] if _are_by_id(value) else list(_records_within(value, ()))
    if sum(_size(records.objects) for records in collections) < _MIN_SHARE * _size(value) or not collections:
        return records_to_documents([value])
    documents = [
        document for records in collections for document in _documents_of(records, several=len(collections) > 1)
    ]
    return _with_remainder(documents, _remainder(value, [records.path for records in collections]))


def _documents_of_array(values: list[Any]) -> list[ParsedDocument]:
    if _is_table(values):
        return rows_to_documents(values)
    if is_rich_text(values) and not any(isinstance(node, str) or isinstance(node.get("text"), str) for node in values):
        return records_to_documents([{"text": values}])
    return records_to_documents(map(_record, values))


def _is_table(values: list[Any]) -> bool:
    """Return whether an array is the rows of a table: arrays of scalars, all of one length."""
    if len(values) < 2 or not all(isinstance(row, list) and len(row) > 1 for row in values):
        return False
    scalars = all(not isinstance(cell, Mapping | list) for row in values for cell in row)
    return scalars and len({len(row) for row in values}) == 1 and any(isinstance(cell, str) for cell in values[0])


def _rows_of_columns(value: Fields) -> list[Fields]:
    """Return the rows of a table written by column, as pandas does; empty if the value is not such a table."""
    mappings = [column for column in value.values() if isinstance(column, Mapping)]
    if len(mappings) == len(value) and mappings[0]:
        numbers = [str(number) for number in range(len(mappings[0]))]
        if all([*column] == numbers for column in mappings):
            return [dict(zip(value, (column[number] for column in mappings), strict=True)) for number in numbers]
    lists = [column for column in value.values() if isinstance(column, list)]
    if len(lists) < len(value) or len(lists) < 2 or not any(name in value for name in TEXT_FIELDS):
        return []
    if len({*map(len, lists)}) > 1:
        return []
    return [dict(zip(value, row, strict=True)) for row in zip(*lists, strict=True)]


def _record(value: Any) -> Fields:  # noqa: ANN401 (any value of JSON)
    """Return an item of an array as a record; any other value than an object becomes its text."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list):
        return {"text": "\n".join(leaf.text for leaf in leaves_of({"": value}))}
    return {"text": "" if value is None else str(value)}


def _all_objects(value: object) -> TypeGuard[list[Fields]]:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _are_by_id(value: Fields) -> bool:
    """Return whether an object holds objects by id: all values are objects, and most have a field in common."""
    objects = [item for item in value.values() if isinstance(item, Mapping)]
    if len(value) < 2 or len(objects) < len(value):
        return False
    if any(name in value for name in (*TEXT_FIELDS, "title")) or not all(name.isprintable() and name for name in value):
        return False
    if all(map(text_field_of, objects)):
        return True
    fields = [name for item in objects for name in item]
    return bool(fields) and max(map(fields.count, set(fields))) >= max(2, _MIN_ALIKE * len(value))


def _records_within(value: Fields, path: tuple[str, ...]) -> Iterator[_Records]:
    """Yield the arrays of objects and the objects by id within an object that is not a record itself."""
    if text_field_of(value):
        return
    for name, child in value.items():
        below = (*path, name)
        if _all_objects(child) and not is_rich_text(child):
            yield _Records(below, child)
        elif isinstance(child, Mapping) and not is_rich_text(child):
            if _are_by_id(child):
                yield _Records(below, [*child.values()], [*child])
            else:
                yield from _records_within(child, below)


def _documents_of(records: _Records, *, several: bool) -> list[ParsedDocument]:
    """Return the documents of an array or object.

    Args:
        several: Whether there are other arrays or objects, so that keys need its path.
    """
    objects = records.objects
    if records.keys is not None:  # the key is the id, and a field named _id becomes a field id
        renamed = [{"id": item["_id"], **item} if "_id" in item else item for item in objects]
        objects = [{**item, "_id": key} for key, item in zip(records.keys, renamed, strict=True)]
    documents = records_to_documents(objects)
    prefix = ".".join(records.path) + "/" if several else ""
    return [
        replace(document, key=prefix + document.key, title=document.title or _title_of_key(document.key))
        for document in documents
    ]


def _title_of_key(key: str) -> str:
    """Return a key that is more than a name, such as a question that the object answers."""
    return key if len(key.split()) > 1 else ""


def _size(value: object) -> int:
    """Return the characters of all strings within a value, and a few for each number."""
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else 3


def _remainder(value: Fields, paths: Sequence[tuple[str, ...]]) -> dict[str, Value]:
    """Return an object without the values at some paths."""
    remainder: dict[str, Value] = {}
    for name, child in value.items():
        below = [path[1:] for path in paths if path and path[0] == name]
        if () in paths or () in below:
            continue
        remainder[name] = _remainder(child, below) if below and isinstance(child, Mapping) else child
    return remainder


def _with_remainder(documents: list[ParsedDocument], remainder: Fields) -> list[ParsedDocument]:
    """Return documents with the values around their records: short ones as metadata of each, long as a document."""
    surrounding = list(leaves_of(remainder))
    short = [leaf for leaf in surrounding if not leaf.listed and len(leaf.text) <= _MAX_FACT]
    if len(short) > _MAX_FACTS:
        short = []
    title = next((leaf.text for leaf in short if leaf.path == "title"), "")
    taken = {name for document in documents for name in document.metadata} | {"title"}
    facts: dict[str, MetadataValue] = {
        f"file.{leaf.path}" if leaf.path in taken else leaf.path: leaf.value
        for leaf in short
        if leaf.path != "title" or any(document.title for document in documents)
    }
    documents = [
        replace(document, title=document.title or title, metadata={**document.metadata, **facts})
        for document in documents
    ]
    long = [leaf for leaf in surrounding if leaf not in short]
    if long:
        text = "\n".join(f"{leaf.path}: {leaf.text}" for leaf in long)
        keys = {document.key for document in documents}
        key = next(name for number in range(len(keys) + 1, 0, -1) if (name := str(number)) not in keys)
        documents += [replace(document, key=key) for document in records_to_documents([{"text": text}])]
    return documents
