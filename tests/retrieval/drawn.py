"""Clustered unit vectors, enough of them for every kind of index, with a dimension that suits none of them."""

from typing import get_args

import numpy as np

from taugate.release.names import MIN_FOR_CODES, Kind
from tests.vectors import unit

KINDS: tuple[Kind, ...] = get_args(Kind)
N, D, K = MIN_FOR_CODES, 26, 10  # a dimension that codes of four components do not divide


def clustered() -> np.ndarray:
    """64 clusters with some spread, (N, D), before they are made unit vectors."""
    rng = np.random.default_rng(3)
    return unit(rng.standard_normal((64, D)))[rng.integers(0, 64, N)] + 0.4 * rng.standard_normal((N, D))
