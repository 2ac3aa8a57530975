"""Arrays from a safetensors file of a release, which may hold anything by now."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from taugate.errors import ReleaseError


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of the file by name. Raises ReleaseError when it cannot be read as safetensors."""
    try:
        arrays: dict[str, NDArray[Any]] = load_file(path)
    except (
        OSError,
        SafetensorError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:  # the last three: no dtype of NumPy
        raise ReleaseError(f"{path}: cannot be read as safetensors; calibrate again") from error
    return arrays
