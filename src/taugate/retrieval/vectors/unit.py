"""Vectors that others have made: checked, and normalized to unit length, because similarity is the cosine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.retrieval.vectors.similarity import Float32

MAX_DIMENSIONS = 1 << 16  # far beyond any real encoder, so that a forged file or request cannot claim all memory
# A vector of float16 numbers that was normalized has a length of 1 ± .001, and one of bfloat16 numbers 1 ± .004.
_UNIT = 0.005
# A vector that was normalized in float32 keeps its bits, so that it scores as where it was made; its length is off by
# 1e-7.
_ROUNDING = 1e-6
_BLOCK = 1 << 14  # rows in float64 at a time: 100 MB of 768 numbers each


def unit_vectors(vectors: NDArray[Any], row_name: Callable[[int], str]) -> tuple[Float32, NDArray[np.float64]]:
    """Return vectors with length 1, (n, d), and the lengths that they had, (n,).

    Args:
        vectors: (n, d) floats of any type.
        row_name: Names a row in messages.

    Raises:
        InputError: If a vector is zero, or has a value that is not finite.
    """
    unit = np.empty(vectors.shape, dtype=np.float32)
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), _BLOCK):
        rows = slice(start, start + _BLOCK)
        wide = vectors[rows].astype(np.float64)  # in float32, the square of a length may overflow
        lengths[rows] = np.linalg.norm(wide, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):  # refused below
            unit[rows] = wide / np.where(np.abs(lengths[rows] - 1) < _ROUNDING, 1.0, lengths[rows])[:, None]
    for wrong, problem in ((~np.isfinite(lengths), "holds NaN or infinity"), (lengths == 0, "is zero")):
        if wrong.any():
            raise InputError(f"{row_name(int(wrong.argmax()))}: {problem} (such rows in all: {wrong.sum():,})")
    return unit, lengths


def were_normalized(lengths: NDArray[np.float64]) -> bool:
    """Return whether all lengths, (n,), are 1, up to the rounding of half precision."""
    return bool((np.abs(lengths - 1) <= _UNIT).all())


def vector_bytes(values: Sequence[float], dimension: int) -> bytes:
    """Return the vector of a query with length 1, as the bytes of (`dimension`,) float32.

    Args:
        values: The vector as it was sent.
        dimension: Length that it must have.

    Raises:
        InputError: If it has another length, is zero, or has a value that is not finite.
    """
    if len(values) != dimension:
        raise InputError(f"vector: has {len(values)} numbers, and those of the release have {dimension}")
    try:
        (unit,), _ = unit_vectors(np.array([values], dtype=np.float64), lambda _: "vector")
    except InputError as error:
        raise InputError(str(error).partition(" (")[0]) from error
    return bytes(unit.tobytes())
