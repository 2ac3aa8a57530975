"""Document texts, read by position without holding them in memory.

The store is a JSON Lines file with an array of byte offsets. A result costs one read of the mapped file and one JSON
parse (about 2 µs), other documents need no Python object, equal corpora give equal bytes, and `head` and `grep` can
read the file. A database would add a parser of untrusted bytes; Parquet would read entire row groups.
"""

import mmap
import shutil
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, overload

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.release.layout import OFFSETS, TEXTS
from taugate.storage.files import Json
from taugate.storage.tensors import read_tensors, write_tensors

Scalar = str | int | float | bool | None
MetadataValue = Scalar | list[str]  # a list holds tags
# Limit of metadata fields in a corpus. A field takes 4 bytes per document, so all fields together take less than a
# vector of 384 dimensions.
MAX_FIELDS = 256
MAX_TAGS = 256  # limit for one field of a document; a tag takes 4 bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A passage of the corpus: a whole document, or one chunk of a longer one."""

    id: str
    text: str
    title: str | None = None  # title; None if it is empty
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)  # scalars and lists of strings, by field
    parent: str | None = None  # id of the document that the chunk is part of; None for a whole document
    span: tuple[int, int] | None = None  # span of the chunk in that document's text, [start, end) in characters

    @property
    def document_id(self) -> str:
        """The id of the document that this passage belongs to: the parent's id, else its own."""
        return self.parent or self.id

    @property
    def encoded_text(self) -> str:
        """The text to encode: title, if any, and text, joined by a space (docs/calibration.md)."""
        return f"{self.title} {self.text}" if self.title else self.text


def write_document(document: Document) -> bytes:
    """Return the JSON of a document on one line; equal documents give equal bytes."""
    record: dict[str, Json] = {
        "_id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": document.metadata,
    }
    if document.parent is not None:
        record |= {"parent": document.parent, "span": document.span}
    return orjson.dumps(record)


def read_document(line: bytes | str) -> Document:
    """Parse a line that `write_document` wrote. Raises ValueError if it is anything else."""
    try:
        record = orjson.loads(line)
        span = record.get("span")
        document = Document(
            record["_id"],
            record["text"],
            record["title"],
            record["metadata"],
            record.get("parent"),
            None if span is None else (span[0], span[1]),
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("not a document") from error
    if not _has_valid_types(document):
        raise ValueError("not a document")
    return document


class DocumentWriter:
    """Writes documents to TEXTS and OFFSETS in a folder one by one; nothing can be read before `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / TEXTS).open("wb")
        self._offsets = array("q", [0])
        self._parents = array("i")
        self._first_chunks: dict[str, int] = {}

    def append(self, document: Document) -> None:
        """Add one document at the next position."""
        if document.parent is not None:
            self._parents.append(self._first_chunks.setdefault(document.parent, len(self._parents)))
        else:
            self._parents.append(len(self._parents))
        written = self._file.write(write_document(document) + b"\n")
        self._offsets.append(self._offsets[-1] + written)

    def close(self) -> None:
        """Finish the texts and write the offsets."""
        self._file.close()
        arrays: dict[str, NDArray[np.generic]] = {"offsets": np.array(self._offsets, dtype=np.int64)}
        if self._first_chunks:  # without chunks, the bytes equal those of earlier versions
            arrays["parents"] = np.array(self._parents, dtype=np.int32)
        write_tensors(self._folder / OFFSETS, arrays)


class Documents(Protocol):
    """The documents of a release by position: in its folder, or in an engine."""

    @property
    def parents(self) -> NDArray[np.int32] | None:
        """See DocumentStore; also None if it is unknown which chunks belong together."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Document]: ...

    def __getitem__(self, position: int, /) -> Document: ...

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """Return the documents at positions, (m,) int64, read together."""
        ...

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """Return the position of the passage with an id, else of the chunks of that document, (m,) int64 ascending.

        The array is empty if there is no such id.
        """
        ...


class DocumentStore(Sequence[Document]):
    """The documents of a folder as a read-only sequence by position, safe to read from many threads.

    Reading a position raises ReleaseError if it holds no document: checking all positions when opening would delay a
    service with millions of documents for seconds.

    Attributes:
        parents: (N,) int32, for every passage the position of the first chunk of its document, which is its own
            position for a whole document. None if the corpus has no chunks.

    Raises:
        ReleaseError: If the two files of the folder do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        arrays = read_tensors(folder / OFFSETS)
        if not {"offsets"} <= {*arrays} <= {"offsets", "parents"}:
            raise ReleaseError(f"{folder / OFFSETS}: not an array of offsets; calibrate again")
        self._offsets = arrays["offsets"]
        self.parents: NDArray[np.int32] | None = arrays.get("parents")
        self._path = folder / TEXTS
        with self._path.open("rb") as file:
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # an empty file
                raise ReleaseError(f"{folder / TEXTS}: holds no document; calibrate again") from error
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """Check that the offsets rise from the first byte to the last, and that three records are documents."""
        offsets = self._offsets
        rising = (
            offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1 and bool((np.diff(offsets) > 0).all())
        )
        if not rising or offsets[0] != 0 or offsets[-1] != len(self._bytes):
            raise ReleaseError(f"{folder / TEXTS}: does not match {OFFSETS}; calibrate again")
        parents = self.parents
        if parents is not None:
            positions = np.arange(len(self))
            # the first chunk of a document is its own parent and precedes the other chunks
            if (
                parents.dtype != np.int32
                or parents.shape != positions.shape
                or not bool(((parents >= 0) & (parents <= positions)).all() and (parents[parents] == parents).all())
            ):
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
        """Return the document at a position, or the documents of a slice."""
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not 0 <= position < len(self):
            raise IndexError(position)
        try:
            return read_document(self._bytes[self._offsets[position] : self._offsets[position + 1]])
        except ValueError as error:
            raise ReleaseError(f"{self._path}: holds no document at {position}; calibrate again") from error

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """See Documents.at."""
        return [self[position] for position in positions.tolist()]

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """See Documents.positions."""
        # The first call reads all documents, which takes some 4 µs per document, and then keeps 8 bytes per id.
        checksums, entries = self._entries
        checksum = np.uint32(_checksum(document_id))
        first, last = np.searchsorted(checksums, checksum), np.searchsorted(checksums, checksum, side="right")
        candidates = entries[first:last].tolist()
        passages = [position for position in candidates if self[position].id == document_id]
        if passages or self.parents is None:
            return np.array(passages, dtype=np.int64)
        chunks = [position for position in candidates if self[position].parent == document_id]
        return np.flatnonzero(self.parents == chunks[0]) if chunks else np.empty(0, dtype=np.int64)

    @cached_property
    def _entries(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Ascending checksums of all ids with their passages; a first chunk also stands for its parent's id."""
        checksums, positions = array("I"), array("i")
        for position, document in enumerate(self):
            checksums.append(_checksum(document.id))
            positions.append(position)
            if document.parent is not None and self.parents is not None and self.parents[position] == position:
                checksums.append(_checksum(document.parent))
                positions.append(position)
        values = np.array(checksums, dtype=np.uint32)
        order = np.argsort(values, kind="stable")
        return values[order], np.array(positions, dtype=np.int32)[order]

    def __iter__(self) -> Iterator[Document]:
        return (self[position] for position in range(len(self)))

    def save(self, folder: Path) -> None:
        """Copy the files into another folder."""
        for name in (TEXTS, OFFSETS):
            shutil.copyfile(self._path.parent / name, folder / name)


def _checksum(document_id: str) -> int:
    """Return a number that few ids share."""
    return zlib.crc32(document_id.encode("utf-8", "surrogatepass"))


def _has_valid_types(document: Document) -> bool:
    """Return whether the fields have the declared types."""
    texts = isinstance(document.id, str) and isinstance(document.text, str) and isinstance(document.title, str | None)
    chunk = isinstance(document.parent, str | None) and all(isinstance(place, int) for place in document.span or ())
    metadata = isinstance(document.metadata, dict) and all(
        isinstance(value, str | int | float | None)
        or (isinstance(value, list) and all(isinstance(tag, str) for tag in value))
        for value in document.metadata.values()
    )
    return texts and chunk and metadata
