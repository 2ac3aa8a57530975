"""The background of a score: similarities with random partners, which show whether a result stands out.

The numbers of a document are stored with the release, or computed from its vector if the documents are in an engine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import TOGETHER, Float32, Float64, QueryVectors, dense_of, mean_and_covariance
from taugate.storage.tensors import Arrays

# Smaller standard deviations are rounding errors of equal float32 vectors.
_MIN_DEVIATION = 1e-6
# Up to so many vectors, OpenBLAS multiplies a symmetric matrix of 384 columns a third faster from the left.
_BATCH = 32
_BLOCK = 4096  # documents read at a time: 6 MB at d = 384


@dataclass(frozen=True)
class ReadDocuments:
    """The vectors and lengths of documents, from which their background is computed."""

    vectors: Float32  # (…, d) float32 of unit length
    lengths: NDArray[np.int64]  # (…) int64 lengths of the texts in bytes

    @classmethod
    def of(cls, vectors: Float32, texts: Iterable[str]) -> Self:
        """Combine m vectors, (m, d) float32, with the m texts that they encode."""
        return cls(vectors, np.array([len(text.encode()) for text in texts], dtype=np.int64))


# Reads documents at distinct ascending positions, (m,) int64.
Read = Callable[[NDArray[np.int64]], ReadDocuments]


@dataclass(frozen=True)
class Background:
    """Similarities of queries and documents with random partners, which separate outstanding scores from usual ones."""

    mean: Float64  # (d,) float64 mean of the document vectors
    covariance: Float64  # (d, d) float64 covariance of the document vectors
    # (N, 5) float32: mean and standard deviation of the document's similarity with documents, the same with queries,
    # and log(1 + length in bytes)
    documents: Float32

    @classmethod
    def of(cls, documents: Float32, queries: QueryVectors, lengths: NDArray[np.int64]) -> Self:
        """Measure the background of a corpus.

        Args:
            documents: (N, d) float32 of unit length.
            queries: (q, d) float32 of unit length.
            lengths: (N,) lengths of the documents' texts in bytes.
        """
        partners = mean_and_covariance(documents)
        stored = _document_rows(ReadDocuments(documents, lengths), partners, mean_and_covariance(dense_of(queries)))
        return cls(*partners, stored)

    def of_queries(self, queries: QueryVectors) -> tuple[Float64, Float64]:
        """Return mean and deviation of similarities with a random document, (n,) float64, for (n, d) queries."""
        return similarity_moments(dense_of(queries), self.mean, self.covariance)

    def rows(self, positions: NDArray[np.int64], results: ReadDocuments | None = None) -> Float32:
        """Return the five numbers of the documents at positions of any shape, (…, 5) float32; `results` is unused."""
        return self.documents[positions]

    def reading(self, read: Read) -> Self:
        """Return the background itself: it describes every document already."""
        return self

    def arrays(self) -> Arrays:
        """Return the arrays to store, by name."""
        return {"mean": self.mean, "covariance": self.covariance, "documents": self.documents}


@dataclass(frozen=True)
class ComputedBackground:
    """A Background for documents outside the release, whose five numbers are computed when needed."""

    mean: Float64  # (d,) float64 mean of the document vectors
    covariance: Float64  # (d, d) float64 covariance of the document vectors
    query_mean: Float64  # (d,) float64 mean of the query vectors
    query_covariance: Float64  # (d, d) float64 covariance of the query vectors
    read: Read | None = None  # reads documents; None if every call passes them

    @classmethod
    def of(cls, partners: tuple[Float64, Float64], queries: QueryVectors, read: Read | None = None) -> Self:
        """Measure the background of a corpus.

        Args:
            partners: Mean and covariance of the document vectors.
            queries: (q, d) float32 of unit length.
        """
        return cls(*partners, *mean_and_covariance(dense_of(queries)), read)

    def of_queries(self, queries: QueryVectors) -> tuple[Float64, Float64]:
        """See Background.of_queries."""
        return similarity_moments(dense_of(queries), self.mean, self.covariance)

    def rows(self, positions: NDArray[np.int64], results: ReadDocuments | None = None) -> Float32:
        """Return the five numbers of documents, (…, 5) float32, equal to `Background.rows` up to float32 rounding.

        Args:
            positions: int64 positions of any shape (…).
            results: Documents at these positions; None to read every distinct one once.
        """
        if results is not None:
            return self._computed(results)
        if self.read is None:
            raise ValueError("pass the documents, or a way to read them")
        distinct, places = np.unique(positions, return_inverse=True)
        rows = np.empty((len(distinct), 5), dtype=np.float32)
        for start in range(0, len(distinct), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows[block] = self._computed(self.read(distinct[block]))
        return rows[places.reshape(positions.shape)]

    def _computed(self, documents: ReadDocuments) -> Float32:
        queries = self.query_mean, self.query_covariance
        return _document_rows(documents, (self.mean, self.covariance), queries)

    def reading(self, read: Read) -> Self:
        """Return a copy that reads documents with `read`."""
        return replace(self, read=read)

    def arrays(self) -> Arrays:
        """Return the arrays to store, by name."""
        return {
            "mean": self.mean,
            "covariance": self.covariance,
            "asked_mean": self.query_mean,
            "asked_covariance": self.query_covariance,
        }


def _document_rows(
    documents: ReadDocuments, partners: tuple[Float64, Float64], queries: tuple[Float64, Float64]
) -> Float32:
    """Compute the five numbers of documents, (…, 5) float32.

    Args:
        partners: Mean and covariance of the document vectors.
        queries: Mean and covariance of the query vectors.
    """
    lengths = documents.lengths
    vectors = documents.vectors.reshape(lengths.size, len(partners[0]))
    columns = [
        *similarity_moments(vectors, *partners),
        *similarity_moments(vectors, *queries),
        np.log1p(lengths.reshape(-1)),
    ]
    return np.column_stack(columns).astype(np.float32).reshape(*lengths.shape, 5)


def similarity_moments(vectors: Float32, mean: Float64, covariance: Float64) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of every vector's similarity with a random partner, (n,) float64 each.

    Args:
        vectors: (n, d) float32.
        mean: (d,) float64 mean of the partners.
        covariance: (d, d) float64 covariance of the partners.
    """
    wide = vectors.astype(np.float64)
    variance = np.einsum("nd,nd->n", _symmetric_product(wide, covariance), wide)
    deviation: Float64 = np.sqrt(np.maximum(variance, _MIN_DEVIATION**2))
    return wide @ mean, deviation


def _symmetric_product(vectors: Float64, matrix: Float64) -> Float64:
    """Multiply vectors, (n, d), by a symmetric matrix, (d, d), in the way that is fastest for so many of them."""
    if 0 < len(vectors) < TOGETHER:
        return np.stack([matrix @ vector for vector in vectors])
    if len(vectors) <= _BATCH:
        product: Float64 = (matrix @ vectors.T).T
        return product
    return vectors @ matrix
