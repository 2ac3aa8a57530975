"""Lines of an input file, one at a time, and faults that say file, line, what is wrong and what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import InputError

_BOM = b"\xef\xbb\xbf"
_DATA_SET = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"
_JSON_TYPES: dict[type, str] = {
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
}


class Fault(InputError):
    """Something wrong on one line of an input file."""

    def __init__(self, path: Path, line: int, wrong: str, remedy: str) -> None:
        super().__init__(f"{path}:{line}: {wrong}; {remedy}")


def read_lines(path: Path, missing: str = _DATA_SET) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its line break.

    Raises InputError, with `missing` as the remedy where there is no such file, or Fault.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if number == 1 and raw.startswith(_BOM):
                    raise Fault(path, 1, "starts with a byte order mark", "save the file as UTF-8 without one")
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    wrong = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8"
                    raise Fault(path, number, wrong, "convert the file to UTF-8") from error
                yield number, line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {missing}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error


def read_objects(path: Path, missing: str = _DATA_SET) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and JSON object of each line of a JSON Lines file. Raises as read_lines."""
    for number, line in read_lines(path, missing):
        if not line.strip():
            raise Fault(path, number, "empty line", "remove it")
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            wrong = f"not JSON: {error.msg} at column {error.colno}"
            raise Fault(path, number, wrong, "write one JSON object a line") from error
        if not isinstance(value, dict):
            raise Fault(path, number, f"{_json_type(value)}, not an object", "write one JSON object a line")
        yield number, value


def required_text(path: Path, line: int, record: dict[str, Any], name: str) -> str:
    """A field that has to be a string with something in it."""
    if name not in record:
        raise Fault(path, line, f'no "{name}"', "every record needs one")
    value = record[name]
    if not isinstance(value, str):
        raise Fault(path, line, f'"{name}" is {_json_type(value)}, not a string', "put it in quotes")
    if not value.strip():
        raise Fault(path, line, f'"{name}" is empty', "fill it in or remove the line")
    return value


def new_id(path: Path, line: int, record: dict[str, Any], seen: dict[str, int]) -> str:
    """The record's `_id`, which no earlier record may have; `seen` maps ids to positions and gains this one."""
    identifier = required_text(path, line, record, "_id")
    if "\t" in identifier or "\n" in identifier:
        raise Fault(path, line, f'"_id" {identifier!r} holds a tab or line break', "qrels cannot name it; rename it")
    if identifier in seen:
        raise Fault(
            path, line, f'"_id" {identifier!r} stands on line {seen[identifier] + 1} already', "make ids unique"
        )
    seen[identifier] = len(seen)
    return identifier


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "null")
