"""Writes index files in FAISS's format, and maps them into memory after checking their contents."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.release.names import INDEX, VECTORS, Kind
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.kinds import (
    COMPONENTS_A_CODE,
    FAISS_TYPES,
    FLOAT32_GRAPH,
    QUANTIZERS,
    ROUNDED_INT8,
    padded_dimension,
    proposes_by_codes,
)
from taugate.retrieval.index.top_k import Index

_MAX_BREADTH = 4096  # for a graph of fewer documents: four times the largest breadth that calibration tries
# FAISS computes 256 distances for each centroid's groups of COMPONENTS_A_CODE numbers, 4 bytes each.
_TABLE = 256 // COMPONENTS_A_CODE
_READING = Lock()  # FAISS's limits on reading apply to the whole process


def save(index: Index, folder: Path) -> None:
    """Write an index to INDEX in a folder and, if its exact vectors are separate, these to VECTORS."""
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} has no files")
    _write(index.faiss, folder / INDEX)
    if index.exact is not None:
        _write(index.exact.faiss, folder / VECTORS)


def sizes(index: AnyIndex) -> tuple[int, int]:
    """Return the size of the file that every search reads, and of all files, in bytes."""
    searched = _size(index.faiss)
    return searched, searched + (0 if index.exact is None else _size(index.exact.faiss))


def load_index(folder: Path, kind: Kind, dimension: int) -> AnyIndex:
    """Map the files of an index into memory; `dimension`: dimension of a query's vector."""
    path = folder / INDEX
    index = _read(path, kind, dimension)
    exact = _read_exact(folder, index, dimension) if proposes_by_codes(index, kind) else None
    if kind in QUANTIZERS or kind == "flat":
        return FlatIndex(index, kind, dimension, exact)
    if not _has_valid_breadth(index, kind):
        raise ReleaseError(f"{path}: has no valid search breadth; calibrate again")
    if kind == "ivf-flat" and index.direct_map.type != faiss.DirectMap.Array:
        raise ReleaseError(f"{path}: has no map from documents to lists; calibrate again")
    if kind != "hnsw" and not lists_hold_every_document(index):
        raise ReleaseError(f"{path}: its lists do not hold every document once; calibrate again")
    return ApproximateIndex(index, kind, exact)


def _read_exact(folder: Path, index: Any, dimension: int) -> FlatIndex:  # noqa: ANN401
    exact = FlatIndex(_read(folder / VECTORS, "flat", dimension))
    if len(exact) != index.ntotal:
        raise ReleaseError(f"{folder / INDEX}: has {index.ntotal} documents, {VECTORS} {len(exact)}; calibrate again")
    return exact


def lists_hold_every_document(index: Any) -> bool:  # noqa: ANN401 (faiss has no types)
    """Return whether the inverted lists of an IVF index hold every document once, at the place that its map names."""
    # A search of FAISS trusts both. The map is optional.
    lists, count = index.invlists, int(index.ntotal)
    if lists.compute_ntotal() != count:  # lists cannot be longer than the file, but the count is arbitrary
        return False
    places = np.full(count, -1, dtype=np.int64)
    for number in range(index.nlist):
        positions = _list_positions(lists, number)
        if ((positions < 0) | (positions >= count)).any():
            return False
        places[positions] = (number << 32) | np.arange(len(positions))  # the encoding of FAISS's map
    mapped = faiss.vector_to_array(index.direct_map.array)
    return bool((places >= 0).all()) and (not len(mapped) or np.array_equal(mapped, places))


def _list_positions(lists: Any, number: int) -> NDArray[np.int64]:  # noqa: ANN401
    size = lists.list_size(number)
    positions: NDArray[np.int64] = faiss.rev_swig_ptr(lists.get_ids(number), size) if size else np.empty(0, np.int64)
    return positions


def _has_valid_breadth(index: Any, kind: Kind) -> bool:  # noqa: ANN401
    if kind == "hnsw":
        return bool(1 <= index.hnsw.efSearch <= max(index.ntotal, _MAX_BREADTH))
    return bool(1 <= index.nprobe <= index.nlist)


def _read(path: Path, kind: Kind, dimension: int) -> Any:  # noqa: ANN401 (faiss has no types)
    try:
        with _limited_reading(path.stat().st_size * (_TABLE if kind == "ivf-pq" else 1)):
            index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except (OSError, RuntimeError, MemoryError) as error:
        raise ReleaseError(f"{path}: FAISS cannot read it as {kind}; calibrate again") from error
    if not (_has_expected_types(index, kind) and index.ntotal and index.d):
        raise ReleaseError(f"{path}: not a {kind} inner-product index with vectors; calibrate again")
    if index.d != (dimension if type(index) is FLOAT32_GRAPH else padded_dimension(kind, dimension)):
        raise ReleaseError(f"{path}: has dimension {index.d}, not the {dimension} of the queries; calibrate again")
    return index


@contextmanager
def _limited_reading(size: int) -> Iterator[None]:
    """Limit what FAISS allocates from a file to `size` bytes, whatever the file claims."""
    if not hasattr(faiss, "set_deserialization_loop_limit"):  # FAISS before 1.15
        yield
        return
    with _READING:
        before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
        faiss.set_deserialization_vector_byte_limit(size)
        faiss.set_deserialization_loop_limit(size)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before[0])
            faiss.set_deserialization_loop_limit(before[1])


def _has_expected_types(index: Any, kind: Kind) -> bool:  # noqa: ANN401
    """Return whether an index and its parts have exactly the types that `build` creates; FAISS has subclasses."""
    types = (FAISS_TYPES[kind], FLOAT32_GRAPH) if kind == "hnsw" else (FAISS_TYPES[kind],)
    if type(index) not in types or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return False
    if kind == "flat":
        return True
    if kind == "flat-int8":
        step = index.sq.rangestat_arg
        return bool(index.sq.qtype == ROUNDED_INT8 or (index.sq.qtype == QUANTIZERS[kind] and 0 < step < np.inf))
    if kind in QUANTIZERS:
        return bool(index.sq.qtype == QUANTIZERS[kind])
    part, count = (index.storage, index.ntotal) if kind == "hnsw" else (index.quantizer, index.nlist)
    stored = faiss.downcast_index(part)
    if type(index) is faiss.IndexHNSWSQ:
        is_expected = type(stored) is faiss.IndexScalarQuantizer and stored.sq.qtype == QUANTIZERS["flat-int8"]
    else:
        is_expected = type(stored) is faiss.IndexFlatIP
    return is_expected and (stored.d, stored.ntotal) == (index.d, count)


def _size(index: Any) -> int:  # noqa: ANN401
    written = 0

    def count(part: bytes) -> int:
        nonlocal written
        written += len(part)
        return len(part)

    faiss.write_index(index, faiss.PyCallbackIOWriter(count))
    return written


def _write(index: Any, path: Path) -> None:  # noqa: ANN401
    """Write through a Python file, which reports a full disk."""
    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
