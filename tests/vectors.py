"""Vectors for tests of search and of what is measured of it."""

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1, in float32 as encoders return them."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
