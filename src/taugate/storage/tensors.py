"""Arrays in safetensors files: nothing else goes in, and whatever a file holds by now comes out or is one error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from taugate.errors import ReleaseError

Arrays = dict[str, NDArray[Any]]  # of whatever types and shapes a file holds


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to one safetensors file: the same bytes for the same arrays.

    Args:
        path: The file, replaced where it exists.
        arrays: By name, of any shape and of a dtype that safetensors has.

    Raises:
        OSError: .
    """
    path.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_tensors(path: Path) -> Arrays:
    """Read all arrays of a safetensors file, by name; nobody has checked their names, shapes or values.

    Args:
        path: The file.

    Raises:
        ReleaseError: Where it cannot be read as safetensors.
    """
    try:
        return load_file(path)
    except (
        OSError,
        SafetensorError,
        KeyError,  # this one and the next two: a dtype that NumPy does not have
        TypeError,
        AttributeError,
    ) as error:
        raise ReleaseError(f"{path}: cannot be read as safetensors; calibrate again") from error
