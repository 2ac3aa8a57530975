"""Input files, plain or packed, read line by line; errors name file, line, problem and remedy."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import orjson

from taugate.errors import InputError
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.storage.files import Json

_BOM = b"\xef\xbb\xbf"
_DATA_SET = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"
# Texts of data sets are far shorter. A packed line may unpack to any length, and is never held in memory as a whole.
MAX_LINE_BYTES = 64 << 20
_JSON_TYPES: dict[type, str] = {
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
}


class LineError(InputError):
    """An error on one line of an input file.

    Attributes:
        line: Number of the line, from 1.
    """

    def __init__(self, path: Path, line: int, problem: str, remedy: str) -> None:
        super().__init__(f"{path}:{line}: {problem}; {remedy}")


def stored_file(path: Path) -> Path:
    """Return the path under which a file of a data set is stored: the path itself, or the one with `.gz` after it."""
    packed = path.with_name(f"{path.name}.gz")
    if path.suffix == ".gz" or not packed.exists():
        return path
    if path.exists():
        raise InputError(f"{path}: {packed.name} also exists, and the two may differ; remove one of them")
    return packed


def read_lines(path: Path, missing: str = _DATA_SET) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line, without its line break."""
    # A byte order mark at the start is skipped, and a packed file is unpacked line by line.
    path = stored_file(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise LineError(path, number, f"longer than {MAX_LINE_BYTES >> 20} MiB", "divide it")
                if number == 1:
                    raw = raw.removeprefix(_BOM)
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    problem = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8"
                    raise LineError(path, number, problem, "convert the file to UTF-8") from error
                yield number, line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {missing}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a gzip file, or a damaged one; pack it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error


def read_objects(path: Path, missing: str = _DATA_SET) -> Iterator[tuple[int, dict[str, Json]]]:
    """Yield the number and the JSON object of each line; parameters and errors as in `read_lines`."""
    for number, line in read_lines(path, missing):
        if not line.strip():
            raise LineError(path, number, "empty line", "remove it")
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} at column {error.colno}"
            raise LineError(path, number, problem, "write one JSON object per line") from error
        if not isinstance(value, dict):
            raise LineError(path, number, f"{_json_type(value)}, not an object", "write one JSON object per line")
        yield number, value


def required_text(path: Path, line: int, record: dict[str, Json], name: str) -> str:
    """Return a field that has to be a string with visible text."""
    if name not in record:
        raise LineError(path, line, f'no "{name}"', "every record needs one")
    value = record[name]
    if not isinstance(value, str):
        raise LineError(path, line, f'"{name}" is {_json_type(value)}, not a string', "put it in quotes")
    if not has_visible_text(value):
        raise LineError(path, line, f'"{name}" is empty', "fill it in or remove the line")
    return value


def required_id(path: Path, line: int, record: dict[str, Json], seen: dict[str, int]) -> str:
    """Return the record's `_id`, which no earlier record may have; a whole number becomes its decimal digits."""
    number = record.get("_id")
    if type(number) is float:
        raise LineError(path, line, f'"_id" {number!r} is not a whole number of 64 bits', "put it in quotes")
    identifier = str(number) if type(number) is int else required_text(path, line, record, "_id")
    if "\t" in identifier or "\n" in identifier:
        raise LineError(
            path, line, f'"_id" {identifier!r} holds a tab or line break', "qrels cannot name it; rename it"
        )
    if identifier in seen:
        first = next(earlier for earlier, item in read_objects(path) if str(item.get("_id")) == identifier)
        raise LineError(path, line, f'"_id" {identifier!r} is already on line {first}', "make ids unique")
    seen[identifier] = len(seen)
    return identifier


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "null")
