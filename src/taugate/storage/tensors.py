"""Reads and writes arrays in safetensors files; any unreadable file is one kind of error."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from taugate.errors import ReleaseError

Arrays = dict[str, NDArray[Any]]  # of any types and shapes
# Types of arrays by their names in the format, which is little-endian, in the order in which the library sorts arrays.
_TYPES = {
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "F32": "<f4",
    "U32": "<u4",
    "I32": "<i4",
    "F16": "<f2",
    "U16": "<u2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_ORDER = [*_TYPES]
_UNMAPPED = "BOOL"  # whose bytes must be 0 or 1
_BFLOAT16 = "BF16"  # the upper half of a float32, which NumPy lacks


class TensorRecord(TypedDict):
    """What the header of a file says about one array."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays of any shape to one safetensors file; equal arrays give equal bytes."""
    # Arrays are written in turn, so that the weights of an encoder are never in memory twice. The library would copy
    # all of them, or rename a private file over `path`.
    with path.open("wb") as file:
        file.writelines(_parts(arrays))


def _parts(arrays: Mapping[str, NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """Yield the header of a safetensors file, then the bytes of one array after the other."""
    types = {name: _NAMES[array.dtype] for name, array in arrays.items()}
    ordered = sorted(arrays, key=lambda name: (_ORDER.index(types[name]), name))
    header: dict[str, TensorRecord] = {}
    end = 0
    for name in ordered:
        start, end = end, end + arrays[name].nbytes
        header[name] = {"dtype": types[name], "shape": [*arrays[name].shape] or [1], "data_offsets": [start, end]}
    content = orjson.dumps(header)
    content += b" " * (-len(content) % 8)  # so that arrays are aligned
    yield len(content).to_bytes(8, "little") + content
    for name in ordered:
        yield np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data


def tensor_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of the file that `write_tensors` writes."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_tensors(path: Path) -> Arrays:
    """Read all arrays of a safetensors file by name; names, shapes and values are unchecked."""
    try:
        return load_file(path)
    except (
        OSError,
        SafetensorError,
        KeyError,  # raised, like the next two, for a dtype that NumPy lacks
        TypeError,
        AttributeError,
    ) as error:
        raise ReleaseError(f"{path}: cannot be read as safetensors; calibrate again") from error


def map_tensors(path: Path) -> Arrays:
    """Map all arrays of a safetensors file into memory, read-only, by name; values are read when they are used."""
    # Arrays of bfloat16 are read at once, as float32.
    try:
        with safe_open(path, framework="numpy"):  # checks the header: types, shapes and places
            stored = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        begin = 8 + int(stored[:8].view("<u8")[0])
        header = orjson.loads(stored[8:begin].tobytes())
        header.pop("__metadata__", None)
        return {name: _mapped(stored[begin:], record) for name, record in header.items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ReleaseError(f"{path}: cannot be read as safetensors; calibrate again") from error


def _mapped(stored: NDArray[np.uint8], record: TensorRecord) -> NDArray[Any]:
    """Return one array of the data of a file, given its record in the header."""
    if record["dtype"] == _UNMAPPED:
        raise ValueError("an array of Booleans")
    start, end = record["data_offsets"]
    if record["dtype"] == _BFLOAT16:
        upper = stored[start:end].view("<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(record["shape"])
    return stored[start:end].view(_TYPES[record["dtype"]]).reshape(record["shape"])
