"""Largest similarities of a query's tokens to those of each document, which are stored with a byte per component.

The query is rounded to a byte per component, too, with a scale for every 64, so that the kernel multiplies integers,
with the same bits on all processors. Without the kernel, NumPy multiplies the rounded numbers in float32.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.encoder.bert import BLOCK, panels, scale_panels
from taugate.retrieval.vectors.similarity import Float32

try:
    from taugate.retrieval.encoder import kernel
except ImportError:  # installed without a compiler
    kernel = None  # type: ignore[assignment]

_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_TINY = np.finfo(np.float32).tiny  # in place of the largest component of a zero vector
_FASTEST = 0  # path of the kernel


class CodedTokens(NamedTuple):
    """Vectors of tokens: codes (tokens, dimension) int8, of which each row has a step, (tokens,) float32."""

    codes: NDArray[np.int8]
    steps: Float32


def coded(vectors: Float32) -> CodedTokens:
    """Return codes and steps of vectors, (tokens, dimension) float32."""
    steps = np.maximum(np.abs(vectors).max(axis=1), _TINY) / np.float32(_MAX_CODE)
    return CodedTokens(np.rint(vectors / steps[:, None]).astype(np.int8), steps)


class StoredTokens(NamedTuple):
    """Vectors of the tokens of N documents: codes and steps as in `CodedTokens`, of all documents.

    Attributes:
        codes: (tokens, dimension) int8.
        steps: (tokens,) float32.
        offsets: (N + 1,) int64; document i has the tokens from offsets[i] to offsets[i + 1].
    """

    codes: NDArray[np.int8]
    steps: Float32
    offsets: NDArray[np.int64]


def largest_products(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    """Return the largest product of every token of a query with the tokens of each document, (n, tokens) float32.

    Args:
        query: (tokens, dimension) float32.
        stored: The documents' tokens; every document has one.
        positions: (n,) int64 positions of the documents.
    """
    tokens, dimension = query.shape
    blocks = np.pad(query, ((0, 0), (0, -dimension % BLOCK))).reshape(-1, BLOCK)
    codes, steps = coded(blocks)
    if kernel is None or dimension % BLOCK:
        rounded = (codes * steps[:, None]).reshape(tokens, -1)[:, :dimension]
        return _by_numpy(rounded, stored, positions)
    weights, scales = panels(codes.reshape(tokens, dimension)), scale_panels(steps.reshape(tokens, -1))
    best = np.empty((len(positions), weights.size // dimension), dtype=np.float32)
    kernel.largest_products(dimension, weights, scales, *stored, positions, best, _FASTEST)
    return best[:, :tokens]


def _by_numpy(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    bounds = [slice(*stored.offsets[position : position + 2].tolist()) for position in positions.tolist()]
    codes = np.concatenate([stored.codes[rows] for rows in bounds], dtype=np.float32)
    steps = np.concatenate([stored.steps[rows] for rows in bounds])
    starts = np.cumsum([0, *(rows.stop - rows.start for rows in bounds[:-1])])
    largest: Float32 = np.maximum.reduceat(codes @ query.T * steps[:, None], starts, axis=0)
    return largest
