"""Types of kernel.c."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def paths(precision: int, /) -> tuple[str, ...]: ...
def model(
    precision: int,
    vocabulary: int,
    types: int,
    positions: int,
    hidden: int,
    inner: int,
    heads: int,
    layers: int,
    pooling: int,
    epsilon: float,
    arrays: Sequence[NDArray[Any]],
    /,
) -> object: ...
def encode(
    model: object, ids: NDArray[np.int32], ends: NDArray[np.int32], vectors: NDArray[np.float32], path: int, /
) -> None: ...
def largest_products(
    k: int,
    weights: NDArray[np.uint8],
    scales: NDArray[np.float32],
    codes: NDArray[np.int8],
    steps: NDArray[np.float32],
    offsets: NDArray[np.int64],
    positions: NDArray[np.int64],
    best: NDArray[np.float32],
    path: int,
    /,
) -> None: ...
