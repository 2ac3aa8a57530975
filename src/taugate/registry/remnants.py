"""Searches files for the ids and texts of erased documents, to show that none is left."""

import html
import json
import mmap
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import KNOWN_PAIRS
from taugate.retrieval.release.second_stage import read_pairs

# Fields that name documents: in the lines of texts, of golden queries, and of judgements in a query log.
_ID_FIELDS = ("_id", "document_id", "relevant", "documents")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz")


@dataclass(frozen=True)
class Remnants:
    """The result of a search for remnants.

    Attributes:
        matches: A line for each match, with the file.
        files: Number of files searched.
    """

    matches: Sequence[str]
    files: int


def find_remnants(places: Sequence[Path], ids: Collection[str], texts: Sequence[str]) -> Remnants:
    """Search files, and all files below folders; links are not followed.

    A compressed file counts as a match, because it may contain anything.

    Args:
        places: Files and folders.
        ids: Ids of documents, searched for in the fields of JSON Lines that name documents, and in the pairs that check
            a reranker.
        texts: Texts, searched for in every file: as they are, and as JSON and HTML encode them.

    Raises:
        OSError: If a place does not exist, or a file cannot be read.
    """
    matches, count = [], 0
    for path in _files(places):
        count += 1
        matches += [f"{path}: {match}" for match in _search_file(path, ids, texts)]
    return Remnants(matches, count)


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
        yield "compressed; unpack it and search again"
        return
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for text in texts:
                if any(content.find(encoded) >= 0 for encoded in _encodings(text)):
                    yield f"contains the text {text!r}"
            if ".jsonl" in path.name:
                for name in sorted(_named_ids(content, ids)):
                    yield f"names the document {name!r}"
    if path.name == KNOWN_PAIRS:
        with suppress(ReleaseError):  # another file of this name
            for name in sorted({pair.document for pair in read_pairs(path)}.intersection(ids)):
                yield f"names the document {name!r}"


def _encodings(text: str) -> set[bytes]:
    """Return a text as UTF-8, as JSON with and without escapes, and as HTML."""
    return {text.encode(), orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode(), html.escape(text).encode()}


def _named_ids(content: mmap.mmap, ids: Collection[str]) -> set[str]:
    """Return the ids of documents that lines name; only lines that contain an id, as JSON encodes it, are parsed."""
    named: set[str] = set()
    for name in ids:
        token, place = orjson.dumps(name), -1
        while name not in named and (place := content.find(token, place + 1)) >= 0:
            begin = content.rfind(b"\n", 0, place) + 1
            end = content.find(b"\n", place)
            if name in _ids_of_line(content[begin : end if end >= 0 else len(content)]):
                named.add(name)
            place = end if end >= 0 else len(content)
    return named


def _ids_of_line(line: bytes) -> set[Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:  # an incomplete line
        return set()
    named: set[Any] = set()
    for value in map(record.get, _ID_FIELDS) if isinstance(record, dict) else ():
        named |= {name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)}
    return named
