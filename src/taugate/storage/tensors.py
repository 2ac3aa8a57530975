"""Reads and writes arrays in safetensors files; any unreadable file is one kind of error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from taugate.errors import ReleaseError

Arrays = dict[str, NDArray[Any]]  # of any types and shapes
# Types of arrays that are mapped into memory, by their names in the format, which is little-endian.
_TYPES = {
    **{"U8": "u1", "I8": "i1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I64": "<i8"},
    **{"F16": "<f2", "F32": "<f4", "F64": "<f8"},
}
_BFLOAT16 = "BF16"  # the upper half of a float32, which NumPy lacks


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays of any shape to one safetensors file; equal arrays give equal bytes."""
    path.write_bytes(tensor_bytes(arrays))


def tensor_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of the file that `write_tensors` writes."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_tensors(path: Path) -> Arrays:
    """Read all arrays of a safetensors file by name; names, shapes and values are unchecked.

    Raises:
        ReleaseError: If it cannot be read as safetensors.
    """
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
    """Map all arrays of a safetensors file into memory, read-only, by name; values are read when they are used.

    Arrays of bfloat16 are read at once, as float32.

    Raises:
        ReleaseError: If it cannot be read as safetensors.
    """
    try:
        with safe_open(path, framework="numpy"):  # checks the header: types, shapes and places
            stored = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        begin = 8 + int(stored[:8].view("<u8")[0])
        header = orjson.loads(stored[8:begin].tobytes())
        header.pop("__metadata__", None)
        return {name: _mapped(stored[begin:], record) for name, record in header.items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ReleaseError(f"{path}: cannot be read as safetensors; calibrate again") from error


def _mapped(stored: NDArray[np.uint8], record: Mapping[str, Any]) -> NDArray[Any]:
    """Return one array of the data of a file, given its record in the header."""
    start, end = record["data_offsets"]
    if record["dtype"] == _BFLOAT16:
        upper = stored[start:end].view("<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(record["shape"])
    return stored[start:end].view(_TYPES[record["dtype"]]).reshape(record["shape"])
