"""Reads and writes arrays in safetensors files; any unreadable file is one kind of error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from taugate.errors import ReleaseError

Arrays = dict[str, NDArray[Any]]  # of any types and shapes


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays of any shape to one safetensors file; equal arrays give equal bytes."""
    path.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


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
