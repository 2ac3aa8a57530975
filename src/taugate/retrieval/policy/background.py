"""The background of a score: similarities with random partners, by which a result stands out or does not.

The numbers of a document are stored with the release, or computed from its vector where the documents are in an engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32, moments
from taugate.storage.tensors import Arrays

Float64 = NDArray[np.float64]
# Below this a standard deviation is rounding: float32 vectors that are all the same.
_MIN_DEVIATION = 1e-6
_READ = 4096  # documents that are read at a time: 6 MB at d = 384


@dataclass(frozen=True)
class ReadDocuments:
    """What is compared with random partners, of some documents.

    Attributes:
        vectors: (…, d) float32 of unit length.
        lengths: (…) int64 bytes of text of each.
    """

    vectors: Float32
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, vectors: Float32, documents: Sequence[Document]) -> Self:
        """Join m vectors, (m, d) float32, with the m documents that they are of."""
        lengths = [len(each.encoded_text.encode()) for each in documents]
        return cls(vectors, np.array(lengths, dtype=np.int64))


# Reads documents at distinct ascending positions, (m,) int64.
Read = Callable[[NDArray[np.int64]], ReadDocuments]


@dataclass(frozen=True)
class Background:
    """Similarities of queries and documents with random partners, which tell an outstanding score from a usual one.

    Attributes:
        mean: (d,) float64 mean of the document vectors.
        covariance: (d, d) float64 of the same.
        documents: (N, 5) float32, for each document the mean and standard deviation of its similarity with documents,
            the same with queries, and log(1 + its length in bytes).
    """

    mean: Float64
    covariance: Float64
    documents: Float32

    @classmethod
    def of(cls, documents: Float32, queries: Float32, lengths: NDArray[np.int64]) -> Self:
        """Measure the background of a corpus.

        Args:
            documents: (N, d) float32 of unit length.
            queries: (q, d) float32 of unit length.
            lengths: (N,) bytes of text of each document.
        """
        partners = mean_and_covariance(documents)
        stored = _document_rows(ReadDocuments(documents, lengths), partners, mean_and_covariance(queries))
        return cls(*partners, stored)

    def of_queries(self, queries: Float32) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each query's similarity with a random document, (n,) float64 each.

        Args:
            queries: (n, d) float32 of unit length.
        """
        return similarity_moments(queries, self.mean, self.covariance)

    def rows(self, positions: NDArray[np.int64], results: ReadDocuments | None = None) -> Float32:
        """Return the five numbers of the documents at positions of any shape, (…, 5) float32.

        Args:
            results: The documents themselves, which are not needed here; see `ComputedBackground.rows`.
        """
        return self.documents[positions]

    def arrays(self) -> Arrays:
        """Return what is stored of it, by name."""
        return {"mean": self.mean, "covariance": self.covariance, "documents": self.documents}


@dataclass(frozen=True)
class ComputedBackground:
    """A Background whose documents are outside the release: their five numbers are computed when they are needed.

    Attributes:
        mean: (d,) and covariance: (d, d) float64, of the document vectors.
        asked_mean: The same of the queries.
        asked_covariance: The same of the queries.
        read: Reads documents; None where they are given with every call.
    """

    mean: Float64
    covariance: Float64
    asked_mean: Float64
    asked_covariance: Float64
    read: Read | None = None

    @classmethod
    def of(cls, partners: tuple[Float64, Float64], queries: Float32, read: Read | None = None) -> Self:
        """Measure the background of a corpus.

        Args:
            partners: Mean and covariance of the document vectors.
            queries: (q, d) float32 of unit length.
            read: See the class.
        """
        return cls(*partners, *mean_and_covariance(queries), read)

    def of_queries(self, queries: Float32) -> tuple[Float64, Float64]:
        """See Background.of_queries."""
        return similarity_moments(queries, self.mean, self.covariance)

    def rows(self, positions: NDArray[np.int64], results: ReadDocuments | None = None) -> Float32:
        """Return the five numbers of documents, (…, 5) float32: those of `Background.rows`, but for float32 rounding.

        Args:
            positions: Of any shape.
            results: The documents at these positions; where they are None they are read, each once.

        Raises:
            ValueError: Where there is nothing to read them with, and what `read` raises.
        """
        if results is not None:
            return self._computed(results)
        if self.read is None:
            raise ValueError("documents have to be given, or a way to read them")
        distinct, places = np.unique(positions, return_inverse=True)
        found = np.empty((len(distinct), 5), dtype=np.float32)
        for start in range(0, len(distinct), _READ):
            block = slice(start, start + _READ)
            found[block] = self._computed(self.read(distinct[block]))
        return found[places.reshape(positions.shape)]

    def _computed(self, documents: ReadDocuments) -> Float32:
        asked = self.asked_mean, self.asked_covariance
        return _document_rows(documents, (self.mean, self.covariance), asked)

    def arrays(self) -> Arrays:
        """Return what is stored of it, by name."""
        names = ("mean", "covariance", "asked_mean", "asked_covariance")
        return {name: getattr(self, name) for name in names}


def _document_rows(
    documents: ReadDocuments, partners: tuple[Float64, Float64], asked: tuple[Float64, Float64]
) -> Float32:
    """Compute the five numbers of documents, (…, 5) float32.

    Args:
        partners: Mean and covariance of document vectors and of query vectors.
        asked: Mean and covariance of document vectors and of query vectors.
    """
    lengths = documents.lengths
    vectors = documents.vectors.reshape(lengths.size, len(partners[0]))
    columns = [
        *similarity_moments(vectors, *partners),
        *similarity_moments(vectors, *asked),
        np.log1p(lengths.reshape(-1)),
    ]
    return np.column_stack(columns).astype(np.float32).reshape(*lengths.shape, 5)


def mean_and_covariance(vectors: CorpusVectors) -> tuple[Float64, Float64]:
    """Return mean, (d,), and covariance, (d, d), of vectors, (n, d) float32, in float64."""
    mean, scatter = moments(vectors)
    return mean, scatter / vectors.shape[0]


def similarity_moments(vectors: Float32, mean: Float64, covariance: Float64) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each vector's similarity with a random partner, (n,) float64 each.

    Args:
        vectors: (n, d) float32.
        mean: (d,) and covariance: (d, d) float64, of the partners.
    """
    wide = vectors.astype(np.float64)
    variance = np.einsum("nd,nd->n", wide @ covariance, wide)
    deviation: Float64 = np.sqrt(np.maximum(variance, _MIN_DEVIATION**2))
    return wide @ mean, deviation
