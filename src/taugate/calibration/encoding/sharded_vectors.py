"""Encodes a data set with the documents' vectors on disk, and reads them from their shards, never all in memory."""

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.calibration.encoding import shards
from taugate.calibration.encoding.cache import EmbeddingCache, ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts, encode_queries, warn_of_longer
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset
from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.layout import TEXTS
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.object_store import Folder, Place, open_place

# Share of a shard's rows above which the whole shard is read: with a warm page cache, reading one row takes 2 µs, and
# a whole shard as long as some 500 rows.
_MAX_SHARE_BY_ROW = 1 / 16
_DTYPES: dict[str, tuple[str, np.dtype[Any]]] = {
    "vectors": ("F32", np.dtype("<f4")),
    "lengths": ("I64", np.dtype("<i8")),
    "truncated": ("BOOL", np.dtype(np.bool_)),
}

_ENCODED = "encoded"  # folder in the spool


class ShardedColumn:
    """One array of all shards, joined along its first axis and read by position.

    Args:
        width: Width of a row; 0 for an array of shape (N,).
    """

    def __init__(self, folder: Path, record: shards.EncodingRecord, name: str, width: int = 0) -> None:
        self._folder, self._record, self._name = folder, record, name
        self._row = (width,) if width else ()
        self._dtype = _DTYPES[name][1]
        self.shape: tuple[int, ...] = (record.rows, *self._row)

    def __getitem__(self, positions: NDArray[np.int64], /) -> NDArray[Any]:
        """Return the rows at positions of any shape; raises IndexError outside 0…N−1."""
        flat = np.asarray(positions, dtype=np.int64).ravel()
        if len(flat) and not 0 <= flat.min() <= flat.max() < self.shape[0]:
            raise IndexError(f"a position outside 0…{self.shape[0] - 1}")
        rows, inverse = np.unique(flat, return_inverse=True)
        values = np.empty((len(rows), *self._row), dtype=self._dtype)
        numbers = rows // self._record.shard_rows
        edges = [0, *np.flatnonzero(np.diff(numbers)) + 1, len(rows)]
        for start, stop in itertools.pairwise(edges if len(rows) else []):
            number = int(numbers[start])
            values[start:stop] = self._read(number, rows[start:stop] - number * self._record.shard_rows)
        return values[inverse.ravel()].reshape(*np.shape(positions), *self._row)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the position of the first row of each shard, and its rows, shard by shard."""
        for number in range(len(self._record.shards)):
            yield number * self._record.shard_rows, self._read(number, None)

    def _read(self, number: int, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        """Return rows of one shard: a small share row by row, a larger share by reading the whole shard.

        Args:
            rows: Ascending and distinct; None for all rows, as a read-only array that needs no copy.
        """
        shard = self._record.shards[number]
        size = self._dtype.itemsize * int(np.prod(self._row, dtype=np.int64))
        descriptor = os.open(self._folder / shards.shard_name(shard.key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            start = _start(descriptor, shard, self._name, self._row)
            if rows is None or len(rows) > _MAX_SHARE_BY_ROW * shard.rows:
                content = np.frombuffer(_pread(descriptor, start, shard.rows * size), dtype=self._dtype)
                every = content.reshape(shard.rows, *self._row)
                return every if rows is None else every[rows]
            parts = b"".join(_pread(descriptor, start + int(row) * size, size) for row in rows)
            return np.frombuffer(parts, dtype=self._dtype).reshape(len(rows), *self._row)
        finally:
            os.close(descriptor)


class ShardedVectors:
    """The vectors of an encoded corpus of N documents: `Vectors` of retrieval.vectors.similarity.

    Attributes:
        shape: (N, d).
        lengths: (N,) int64 bytes of each text, by position.
    """

    def __init__(self, folder: Path, record: shards.EncodingRecord) -> None:
        self._vectors = ShardedColumn(folder, record, "vectors", record.dimension)
        self.record = record
        self.shape: tuple[int, ...] = self._vectors.shape
        self.lengths = ShardedColumn(folder, record, "lengths")
        self.truncated = sum(shard.truncated for shard in record.shards)

    @classmethod
    def open(cls, location: str, encoder_sha256: str, spool: Path) -> Self:
        """Open a finished encoding after checking the digest of every shard.

        Args:
            spool: A folder for the copy, which has to outlive the result.
        """
        place = open_place(location)
        record = shards.read_record(place)
        if record is None:
            raise InputError(f"{location}: no finished encoding; run taugate encode until it finishes")
        if record.encoder != encoder_sha256:
            raise InputError(
                f"{location}: its vectors are of another encoder; give that one with --encoder, or encode again"
            )
        local = isinstance(place, Folder)
        if not local:
            _check_free_space(location, record, spool)
        for shard in record.shards:
            _fetch(place, shard, None if local else spool / shards.shard_name(shard.key), record.dimension)
        opened = cls(Path(location) if local else spool, record)
        for number in range(len(record.shards)):
            for column in (opened._vectors, opened.lengths):  # raises if the arrays do not match the record
                column[np.array([number * opened.record.shard_rows])]
        return opened

    def check_corpus(self, location: str, spool: Path) -> None:
        """Raise InputError unless these are the vectors of the corpus in `spool`."""
        keys = [shard.key for shard in shards.corpus_shards(spool, self.record.encoder, self.record.shard_rows)]
        for number, (key, shard) in enumerate(zip(keys, self.record.shards, strict=False)):
            if key != shard.key:
                raise InputError(
                    f"{location}: its vectors are of another corpus: documents differ from number "
                    f"{number * self.record.shard_rows + 1} on; encode this corpus"
                )
        if len(keys) != len(self.record.shards):
            raise InputError(
                f"{location}: holds {self.record.rows} vectors, but the corpus has other documents; encode this corpus"
            )

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        """Return the float32 vectors at positions of any shape; the result has one more axis at its end, d long."""
        return self._vectors[positions]

    def blocks(self) -> Iterator[tuple[int, Float32]]:
        """Yield the position of the first vector of each shard, and its vectors, (m, d), shard by shard."""
        return self._vectors.blocks()


def _check_free_space(location: str, record: shards.EncodingRecord, spool: Path) -> None:
    needed = record.rows * (4 * record.dimension + 9)
    free = shutil.disk_usage(spool).free
    if needed > free:
        raise InputError(
            f"{location}: copying its vectors takes {needed} bytes in {spool.parent}, but only {free} are free; free "
            "some space, or set TMPDIR"
        )


def _fetch(place: Place, shard: shards.ShardRecord, path: Path | None, dimension: int) -> None:
    """Check the digest of a shard, and copy it to `path` unless that is None."""
    name, max_bytes = shards.shard_name(shard.key), shards.shard_bytes(shard.rows, dimension)
    try:
        if path is None:
            _, digest = place.download(name, None, max_bytes)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                _, digest = place.download(name, file, max_bytes)
    except FileNotFoundError as error:
        raise InputError(f"{place.url}/{name}: is missing; run taugate encode again to recreate it") from error
    if digest != shard.sha256:
        raise InputError(
            f"{place.url}/{name}: is damaged: its digest differs from the record; "
            "run taugate encode again to recreate it"
        )


def _start(descriptor: int, shard: shards.ShardRecord, name: str, row: tuple[int, ...]) -> int:
    """Return the offset of an array in a shard's file, in bytes."""
    try:
        length = int.from_bytes(_pread(descriptor, 0, 8), "little")
        header = orjson.loads(_pread(descriptor, 8, min(length, shards.HEADER_BYTES)))[name]
        start: int = 8 + length + header["data_offsets"][0]
        as_expected = header["dtype"] == _DTYPES[name][0] and header["shape"] == [shard.rows, *row]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ReleaseError) as error:
        raise InputError(f"{shards.shard_name(shard.key)}: not a shard of an encoding; encode again") from error
    if not as_expected:
        raise InputError(f"{shards.shard_name(shard.key)}: the shape of {name} differs from the record; encode again")
    return start


def _pread(descriptor: int, start: int, size: int) -> bytes:
    """Read exactly `size` bytes from `start`."""
    parts, left = [], size
    while left:
        part = os.pread(descriptor, left, start + size - left)
        if not part:
            raise ReleaseError("a shard of the encoding is shorter than its header says; encode again")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def encode_in_shards(
    dataset: Dataset, encoders: Encoders, existing: str | ReusableVectors | None, spool: Path, job: Job
) -> tuple[EncodedTexts, ShardedVectors]:
    """Encode documents into a folder of the spool, or open vectors that `taugate encode` wrote, and encode the queries.

    Args:
        existing: Folder or URL with all vectors, which `taugate encode` wrote, or vectors of some documents; None
            to encode all documents now.

    Raises:
        InputError: If the embeddings are of other documents or of another encoder.
        EncoderError: If the encoder fails.
    """
    folder = spool / _ENCODED
    with job.stage("encode"):
        if isinstance(existing, str):
            folder.mkdir()
            vectors = ShardedVectors.open(existing, encoders.documents.sha256, folder)
            vectors.check_corpus(existing, spool)
        else:
            vectors = _encoded(encoders.documents, spool, folder, len(dataset.documents), job, existing)
    warn_of_longer(vectors, encoders.documents.config, job)
    # `encode_queries` adds its own time to the stage.
    cache = EmbeddingCache.of(encoders.queries)
    queries = encode_queries(dataset, encoders.queries, cache, job)
    count = len(dataset.documents)
    source = f"encoded {count if existing is None else count - len(existing)} of"
    if isinstance(existing, str):
        source = f"read the vectors in {existing} for"
    job.report(f"{source} {count} documents and encoded {queries.encoded} of {queries.total} queries")
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    encoded = EncodedTexts(
        documents=vectors, lengths=vectors.lengths, truncated_documents=vectors.truncated, **queries.vectors
    )
    return encoded, vectors


def _encoded(
    encoder: ExportedEncoder, spool: Path, folder: Path, total: int, job: Job, reusable: ReusableVectors | None = None
) -> ShardedVectors:
    place = open_place(str(folder))
    records: list[shards.ShardRecord] = []
    with job.task("encoding documents", total) as task, (spool / TEXTS).open("rb") as texts:
        for number, shard in enumerate(shards.corpus_shards(spool, encoder.sha256)):
            reusable_rows = None if reusable is None else reusable.rows(number * shards.SHARD_ROWS, shard.rows)
            if reusable_rows is not None:
                task.skip(len(reusable_rows.places))
            records.append(
                shards.write_shard(place, shard, encoder, texts.read(shard.size), task.advance, reusable_rows)
            )
    return ShardedVectors(folder, shards.write_record(place, encoder, records))
