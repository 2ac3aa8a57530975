"""Where something of a document is left, file by file, so that nothing left is shown and not believed."""

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

# By which lines of ours name documents: texts, golden queries, judgements in a log of queries.
_FIELDS = ("_id", "document_id", "relevant", "documents")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz")


@dataclass(frozen=True)
class Left:
    """found: places with what was found there, one line each; files: how many were looked through."""

    found: Sequence[str]
    files: int


def look(places: Sequence[Path], ids: Collection[str], texts: Sequence[str]) -> Left:
    """Look through files, and all files below folders; links are not followed.

    ids: looked for in JSON Lines, where a line says that it is about a document; texts: looked for in every file, as
    they are and as JSON and HTML write them. A packed file counts as found: nobody can tell. Raises OSError for a place
    that is not there, or a file that cannot be read.
    """
    found, count = [], 0
    for path in _files(places):
        count += 1
        found += [f"{path}: {what}" for what in _in_file(path, ids, texts)]
    return Left(found, count)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not stat.S_ISDIR(place.stat().st_mode):
            yield place
            continue
        for folder, _, names in os.walk(place, onerror=_refused):
            for name in sorted(names):
                if stat.S_ISREG(Path(folder, name).lstat().st_mode):
                    yield Path(folder, name)


def _refused(error: OSError) -> None:
    raise error


def _in_file(path: Path, ids: Collection[str], texts: Sequence[str]) -> Iterator[str]:
    if path.name.endswith(_PACKED):
        yield "is packed; unpack it, and look through that"
        return
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for text in texts:
                if any(content.find(written) >= 0 for written in _written(text)):
                    yield f"has the text {text!r}"
            if ".jsonl" in path.name:
                for name in sorted(_named(content, ids)):
                    yield f"has the document {name!r}"


def _written(text: str) -> set[bytes]:
    """A text as files have it."""
    return {text.encode(), orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode(), html.escape(text).encode()}


def _named(content: mmap.mmap, ids: Collection[str]) -> set[str]:
    """The documents that lines are about. A line is read where it has an id, as JSON writes it, anywhere."""
    found: set[str] = set()
    for name in ids:
        token, place = orjson.dumps(name), -1
        while name not in found and (place := content.find(token, place + 1)) >= 0:
            begin = content.rfind(b"\n", 0, place) + 1
            end = content.find(b"\n", place)
            if name in _documents(content[begin : end if end >= 0 else len(content)]):
                found.add(name)
            place = end if end >= 0 else len(content)
    return found


def _documents(line: bytes) -> set[Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:  # half a line
        return set()
    named: set[Any] = set()
    for value in map(record.get, _FIELDS) if isinstance(record, dict) else ():
        named |= {each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)}
    return named
