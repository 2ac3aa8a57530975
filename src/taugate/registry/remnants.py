"""Remnants of an erased document: a look through files for its id and its text, so that its absence can be shown."""

import html
import json
import mmap
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

# Fields by which lines name documents: of texts, of golden queries, of judgements in a query log.
_ID_FIELDS = ("_id", "document_id", "relevant", "documents")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz")


@dataclass(frozen=True)
class Remnants:
    """What a search for remnants found.

    Attributes:
        found: One line for each file and what it has.
        files: How many files were looked through.
    """

    found: Sequence[str]
    files: int


def find_remnants(places: Sequence[Path], ids: Collection[str], texts: Sequence[str]) -> Remnants:
    """Search files, and all files below folders; links are not followed.

    A compressed file counts as found, as nobody can tell what is in it.

    Args:
        places: Files and folders.
        ids: Of documents; searched for in JSON Lines, where a line says that it is about a document.
        texts: Searched for in every file, as they are and as JSON and HTML write them.

    Raises:
        OSError: For a place that is not there, or a file that cannot be read.
    """
    found, count = [], 0
    for path in _files(places):
        count += 1
        found += [f"{path}: {what}" for what in _search_file(path, ids, texts)]
    return Remnants(found, count)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not stat.S_ISDIR(place.stat().st_mode):
            yield place
            continue
        for folder, _, names in os.walk(place, onerror=_raise):
            for name in sorted(names):
                if stat.S_ISREG(Path(folder, name).lstat().st_mode):
                    yield Path(folder, name)


def _raise(error: OSError) -> None:
    raise error


def _search_file(path: Path, ids: Collection[str], texts: Sequence[str]) -> Iterator[str]:
    if path.name.endswith(_COMPRESSED):
        yield "is packed; unpack it, and look through that"
        return
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for text in texts:
                if any(content.find(encoded) >= 0 for encoded in _encodings(text)):
                    yield f"has the text {text!r}"
            if ".jsonl" in path.name:
                for name in sorted(_named_ids(content, ids)):
                    yield f"has the document {name!r}"


def _encodings(text: str) -> set[bytes]:
    """Return a text as UTF-8, as JSON with and without escapes, and as HTML."""
    return {text.encode(), orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode(), html.escape(text).encode()}


def _named_ids(content: mmap.mmap, ids: Collection[str]) -> set[str]:
    """Return the ids that lines are about; only lines that hold an id, as JSON writes it, are parsed."""
    found: set[str] = set()
    for name in ids:
        token, place = orjson.dumps(name), -1
        while name not in found and (place := content.find(token, place + 1)) >= 0:
            begin = content.rfind(b"\n", 0, place) + 1
            end = content.find(b"\n", place)
            if name in _ids_of_line(content[begin : end if end >= 0 else len(content)]):
                found.add(name)
            place = end if end >= 0 else len(content)
    return found


def _ids_of_line(line: bytes) -> set[Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:  # half a line
        return set()
    named: set[Any] = set()
    for value in map(record.get, _ID_FIELDS) if isinstance(record, dict) else ():
        named |= {each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)}
    return named
