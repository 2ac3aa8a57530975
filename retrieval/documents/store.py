"""Document texts, read by position without holding them in memory.

JSON Lines beside an array of byte offsets: one read of the mapped file and one JSON parse a result (about 2 µs), no
Python object for any document that nobody asked for, the same bytes for the same corpus, and a file that `head` and
`grep` understand. A database would add a parser that reads untrusted bytes; Parquet would read whole row groups.
"""

import mmap
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np
import orjson

from taugate.errors import ReleaseError
from taugate.storage.tensors import read_tensors, write_tensors

Scalar = str | int | float | bool | None
TEXTS, OFFSETS = "documents.jsonl", "documents.safetensors"
# The most metadata fields of one corpus. Each takes 4 bytes per document; all of them take less than a vector of 384
# dimensions.
MOST_FIELDS = 256


@dataclass(frozen=True, slots=True)
class Document:
    """A passage of the corpus.

    id: its `_id`. text, title: its words; an empty title is None. metadata: a flat mapping of scalars.
    """

    id: str
    text: str
    title: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def encoded_text(self) -> str:
        """The text that is encoded: title and text, joined by a space where there is a title (docs/calibration.md)."""
        return f"{self.title} {self.text}" if self.title else self.text


class DocumentWriter:
    """Writes documents to a folder one by one; nothing can be read before `close`.

    folder: where both files go, TEXTS and OFFSETS. Raises OSError, as every method does.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / TEXTS).open("wb")
        self._offsets = array("q", [0])

    def append(self, document: Document) -> None:
        """Add one document at the next position."""
        record = {"_id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
        written = self._file.write(orjson.dumps(record) + b"\n")
        self._offsets.append(self._offsets[-1] + written)

    def close(self) -> None:
        """Finish the texts, and write the offsets."""
        self._file.close()
        write_tensors(self._folder / OFFSETS, {"offsets": np.array(self._offsets, dtype=np.int64)})


class DocumentStore(Sequence[Document]):
    """The documents of a folder as a read-only sequence by position, safe to read from many threads.

    folder: where a DocumentWriter has written. Raises ReleaseError where its two files do not belong together; reading
    a position raises ReleaseError where it holds no document, as to check all of them first would keep a service with
    millions waiting for seconds.
    """

    def __init__(self, folder: Path) -> None:
        arrays = read_tensors(folder / OFFSETS)
        if {*arrays} != {"offsets"}:
            raise ReleaseError(f"{folder / OFFSETS}: not an array of offsets; calibrate again")
        self._offsets = arrays["offsets"]
        self._path = folder / TEXTS
        with self._path.open("rb") as file:
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # an empty file
                raise ReleaseError(f"{folder / TEXTS}: holds no document; calibrate again") from error
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """Check that the offsets rise from the first byte to the last, and that three of the records are documents."""
        offsets = self._offsets
        rising = (
            offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1 and bool((np.diff(offsets) > 0).all())
        )
        if not rising or offsets[0] != 0 or offsets[-1] != len(self._bytes):
            raise ReleaseError(f"{folder / TEXTS}: does not match {OFFSETS}; calibrate again")
        for position in {0, len(self) // 2, len(self) - 1}:
            self[position]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, position: int) -> Document: ...
    @overload
    def __getitem__(self, position: slice) -> list[Document]: ...
    def __getitem__(self, position: int | slice) -> Document | list[Document]:
        """Return the document at a position, or those of a slice."""
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not 0 <= position < len(self):
            raise IndexError(position)
        try:
            record = orjson.loads(self._bytes[self._offsets[position] : self._offsets[position + 1]])
            found = Document(record["_id"], record["text"], record["title"], record["metadata"])
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ReleaseError(f"{self._path}: holds no document at {position}; calibrate again") from error
        if not _has_valid_types(found):
            raise ReleaseError(f"{self._path}: holds no document at {position}; calibrate again")
        return found

    def __iter__(self) -> Iterator[Document]:
        return (self[position] for position in range(len(self)))


def _has_valid_types(document: Document) -> bool:
    """Tell whether the fields have the types that the class declares."""
    texts = isinstance(document.id, str) and isinstance(document.text, str) and isinstance(document.title, str | None)
    scalars = isinstance(document.metadata, dict) and all(
        isinstance(value, str | int | float | None) for value in document.metadata.values()
    )
    return texts and scalars
