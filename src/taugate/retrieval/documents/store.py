"""Document texts, read by position without holding them in memory.

JSON Lines beside an array of byte offsets: one read of the mapped file and one JSON parse a result (about 2 µs), no
Python object for any document that nobody asked for, the same bytes for the same corpus, and a file that `head` and
`grep` understand. A database would add a parser that reads untrusted bytes; Parquet would read whole row groups.
"""

import mmap
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
from taugate.storage.tensors import read_tensors, write_tensors

Scalar = str | int | float | bool | None
MetadataValue = Scalar | list[str]  # a list holds tags
TEXTS, OFFSETS = "documents.jsonl", "documents.safetensors"
# The most metadata fields of one corpus. Each takes 4 bytes per document; all of them take less than a vector of 384
# dimensions.
MAX_FIELDS = 256
MAX_TAGS = 256  # of one field of a document; each takes 4 bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A passage of the corpus: a whole document, or one chunk of a longer one.

    Attributes:
        id: Its `_id`.
        text: Its words; an empty title is None.
        title: Its words; an empty title is None.
        metadata: Scalars, and lists of strings, by field.
        parent: Id of the document that a chunk was cut from; None where the passage is a whole document.
        span: Where the chunk lies in that document's text, [start, end) in characters.
    """

    id: str
    text: str
    title: str | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    parent: str | None = None
    span: tuple[int, int] | None = None

    @property
    def document_id(self) -> str:
        """The id of the document that this passage belongs to: the parent's, else its own."""
        return self.parent or self.id

    @property
    def encoded_text(self) -> str:
        """The text that is encoded: title and text, joined by a space where there is a title (docs/calibration.md)."""
        return f"{self.title} {self.text}" if self.title else self.text


def write_document(document: Document) -> bytes:
    """Return the JSON of a document, on one line; the same bytes for the same document."""
    record: dict[str, object] = {
        "_id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": document.metadata,
    }
    if document.parent is not None:
        record |= {"parent": document.parent, "span": document.span}
    return orjson.dumps(record)


def read_document(line: bytes | str) -> Document:
    """Parse what `write_document` wrote.

    Raises:
        ValueError: For anything else.
    """
    try:
        record = orjson.loads(line)
        span = record.get("span")
        found = Document(
            record["_id"],
            record["text"],
            record["title"],
            record["metadata"],
            record.get("parent"),
            None if span is None else (span[0], span[1]),
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("not a document") from error
    if not _has_valid_types(found):
        raise ValueError("not a document")
    return found


class DocumentWriter:
    """Writes documents to a folder one by one; nothing can be read before `close`.

    Attributes:
        folder: Where both files go, TEXTS and OFFSETS.

    Raises:
        OSError: , as every method does.
    """

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
        """Finish the texts, and write the offsets."""
        self._file.close()
        arrays: dict[str, NDArray[np.generic]] = {"offsets": np.array(self._offsets, dtype=np.int64)}
        if self._first_chunks:  # a corpus without chunks keeps the bytes that it always had
            arrays["parents"] = np.array(self._parents, dtype=np.int32)
        write_tensors(self._folder / OFFSETS, arrays)


class Documents(Protocol):
    """The documents of a release by position: in its folder, or in an engine."""

    @property
    def parents(self) -> NDArray[np.int32] | None:
        """See DocumentStore; None also where it is not known which chunks belong together."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Document]: ...

    def __getitem__(self, position: int, /) -> Document: ...

    def at(self, positions: NDArray[np.int64]) -> list[Document]:
        """Return the documents at positions, (m,) int64, read together.

        Raises:
            ReleaseError: .
        """
        ...

    def positions(self, document_id: str) -> NDArray[np.int64]:
        """Return the position of the passage with an id, else those of the chunks of the document with it, ascending.

        Args:
            document_id: Of a passage or of a parent.

        Returns:
            (m,) int64; none where there is no such id.
        """
        ...


class DocumentStore(Sequence[Document]):
    """The documents of a folder as a read-only sequence by position, safe to read from many threads.

    Attributes:
        folder: Where a DocumentWriter has written.

    Raises:
        ReleaseError: Where its two files do not belong together; reading a position raises ReleaseError where it holds
            no document, as to check all of them first would keep a service with millions waiting for seconds.
    """

    def __init__(self, folder: Path) -> None:
        arrays = read_tensors(folder / OFFSETS)
        if not {"offsets"} <= {*arrays} <= {"offsets", "parents"}:
            raise ReleaseError(f"{folder / OFFSETS}: not an array of offsets; calibrate again")
        self._offsets = arrays["offsets"]
        # (N,) int32: for each passage the position of the first chunk of its document, which is its own for a whole
        # document. None where the corpus has no chunks.
        self.parents: NDArray[np.int32] | None = arrays.get("parents")
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
        parents = self.parents
        if parents is not None:
            positions = np.arange(len(self))
            # the first chunk of a document is its own parent, and comes before the others
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
        """Return the document at a position, or those of a slice."""
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
        """Return the position of the passage with an id, else those of the chunks of the document with it, ascending.

        Args:
            document_id: Of a passage or of a parent.  The first call reads all documents, which takes some 4 µs each;
                an entry takes 8 bytes then.

        Returns:
            (m,) int64; none where there is no such id.
        """
        checksums, entries = self._entries
        checksum = np.uint32(_checksum(document_id))
        first, last = np.searchsorted(checksums, checksum), np.searchsorted(checksums, checksum, side="right")
        found = entries[first:last].tolist()
        own = [position for position in found if self[position].id == document_id]
        if own or self.parents is None:
            return np.array(own, dtype=np.int64)
        chunks = [position for position in found if self[position].parent == document_id]
        return np.flatnonzero(self.parents == chunks[0]) if chunks else np.empty(0, dtype=np.int64)

    @cached_property
    def _entries(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Checksums of all ids, ascending, and the passage of each: its own id, and its parent's for a first chunk."""
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


def _checksum(document_id: str) -> int:
    """Return a number that most ids have for themselves."""
    return zlib.crc32(document_id.encode("utf-8", "surrogatepass"))


def _has_valid_types(document: Document) -> bool:
    """Tell whether the fields have the types that the class declares."""
    texts = isinstance(document.id, str) and isinstance(document.text, str) and isinstance(document.title, str | None)
    chunk = isinstance(document.parent, str | None) and all(isinstance(place, int) for place in document.span or ())
    metadata = isinstance(document.metadata, dict) and all(
        isinstance(value, str | int | float | None)
        or (isinstance(value, list) and all(isinstance(tag, str) for tag in value))
        for value in document.metadata.values()
    )
    return texts and chunk and metadata
