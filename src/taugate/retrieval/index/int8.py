"""Codes of one byte per component, which propose documents to exact search ten times as fast as float32 vectors.

FAISS multiplies the codes of a query and of a document in whole numbers. How far such a product can be from the
similarity follows from the rounding of the codes alone, so exact search can prove that it misses no document.
"""

from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.kinds import padded, padded_dimension
from taugate.retrieval.index.names import Kind
from taugate.retrieval.vectors.similarity import Float32, rounding_bound

_KIND: Kind = "flat-int8"
_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_ROUNDED = 0.5 + _MAX_CODE * 2.0**-24  # largest difference of a code from its float32 quotient by the step
_BLOCK = 1 << 14  # documents coded at a time: 25 MB of float32 at d = 384


class Int8Codes:
    """The codes of N documents: their components divided by one step for all of them, and rounded.

    Attributes:
        faiss: Scalar-quantised index of FAISS; its argument of range statistics, which these codes do not use, has the
            step, because FAISS stores no other number with such an index.

    Args:
        index: The index of FAISS.
        dimension: Dimension of a vector before padding.
    """

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self._step = float(index.sq.rangestat_arg)
        # Largest rounding error of a component, and of the length of a document.
        self._component_error = _ROUNDED * self._step
        self._length = 1 + self._component_error * np.sqrt(dimension)
        self._bound = rounding_bound(index.d)

    @classmethod
    def build(cls, vectors: Float32) -> Self:
        """Code vectors of unit length, (N, d) float32, N ≥ 1."""
        dimension = vectors.shape[1]
        index = faiss.IndexScalarQuantizer(
            padded_dimension(_KIND, dimension), faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
        )
        index.sq.rangestat_arg = add_codes(index, vectors, _BLOCK)
        return cls(index, dimension)

    def propose(
        self, queries: Float32, count: int, parameters: faiss.SearchParameters | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the documents with the highest products of codes.

        Args:
            queries: (n, d) float32.
            count: Number of documents per query.
            parameters: Parameters of FAISS, such as a subset to search.

        Returns:
            The highest similarity that a document besides these can have, (n,), and their positions, (n, count).
        """
        codes, steps = query_codes(queries)
        products, candidates = self.faiss.search(padded(codes, self.faiss.d), count, params=parameters)
        lost = queries - codes * steps[:, None]
        # q·v − (t·c_q)·(s·c_v) = q·(v − s·c_v) + (q − t·c_q)·(s·c_v), by Hölder's and Cauchy's inequality.
        bounds = np.abs(queries).sum(axis=1, dtype=np.float64) * self._component_error
        bounds += np.sqrt(np.einsum("nd,nd->n", lost, lost, dtype=np.float64)) * self._length + self._bound
        return products[:, -1] * (steps * self._step) + bounds, candidates


def add_codes(index: Any, vectors: Float32, block: int) -> float:  # noqa: ANN401
    """Add the codes of vectors to an index of FAISS that stores signed bytes; returns their step.

    Args:
        index: Index of the padded dimension.
        vectors: (N, d) float32, N ≥ 1.
        block: Number of vectors added at a time.
    """
    step = np.float32(max(vectors.max(), -vectors.min()) / _MAX_CODE) or np.float32(1)
    for start in range(0, len(vectors), block):
        index.add(padded(np.rint(vectors[start : start + block] / step), index.d))
    return float(step)


def query_codes(queries: Float32) -> tuple[Float32, Float32]:
    """Return the codes of queries, (n, d) whole numbers from −127 to 127, and the step of each query, (n,)."""
    steps = np.abs(queries).max(axis=1) / np.float32(_MAX_CODE)
    steps[steps == 0] = 1
    return np.rint(queries / steps[:, None]), steps
