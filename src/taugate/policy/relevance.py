"""The probability that a result is relevant, by logistic models of its score and of how far it stands out.

It stands out from similarities with random partners, whose moments are stored by document, or computed from its vector
if the documents are in an engine.
"""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.policy.arrays import TOGETHER, Float32, Float64, QueryVectors, Ranking, dense_of, mean_and_covariance
from taugate.policy.policy import relative
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

# Smaller standard deviations are rounding errors of equal float32 vectors.
_MIN_DEVIATION = 1e-6
# Up to so many vectors, OpenBLAS multiplies a symmetric matrix of 384 columns a third faster from the left.
_BATCH = 32
_BLOCK = 4096  # documents read at a time: 6 MB at d = 384

_RECALIBRATION, _ON_TOPIC = "recalibration", "on_topic"
FEATURES = (
    "score",
    "relative_score",
    "gap_to_next",  # 0 for the last of the K
    "log_rank",
    "best_score",
    "mean_score",  # of the K
    "score_deviation",  # of the K
    "gap_after_best",
    "query_z",  # in standard deviations of the query's similarity with random documents
    "best_query_z",
    "query_z_behind_best",
    "document_z",  # in standard deviations of the document's similarity with random documents
    "document_z_behind_best",
    "asked_z",  # in standard deviations of the document's similarity with queries
    "asked_z_behind_best",
    "log_length",
)
# What tells a query about the documents from any other: its best score, and how far that stands out.
QUERY_FEATURES = ("best_score", "best_query_z")
_QUERY_COLUMNS = [FEATURES.index(name) for name in QUERY_FEATURES]
# Log-probabilities are kept below 0, so that those of two certainties have a product with finite log-odds.
_MAX_LOG_PROBABILITY = -np.finfo(np.float64).tiny


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
class _Partners:
    """The documents as random partners of a query: mean, (d,), and covariance, (d, d), of their vectors, float64."""

    mean: Float64
    covariance: Float64

    def of_queries(self, queries: QueryVectors) -> tuple[Float64, Float64]:
        """Return mean and deviation of similarities with a random document, (n,) float64, for (n, d) queries."""
        return similarity_moments(dense_of(queries), self.mean, self.covariance)


@dataclass(frozen=True)
class Background(_Partners):
    """Similarities of queries and documents with random partners, which separate outstanding scores from usual ones."""

    # (N, 5) float32: mean and standard deviation of the document's similarity with documents, the same with queries,
    # and log(1 + length in bytes)
    documents: Float32

    @classmethod
    def of(cls, documents: Float32, queries: QueryVectors, lengths: NDArray[np.int64]) -> Self:
        """Measure the background of a corpus; `lengths`: (N,) lengths of the documents' texts in bytes."""
        partners = mean_and_covariance(documents)
        stored = _document_rows(ReadDocuments(documents, lengths), partners, mean_and_covariance(dense_of(queries)))
        return cls(*partners, stored)

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
class ComputedBackground(_Partners):
    """A Background for documents outside the release, whose five numbers are computed when needed."""

    query_mean: Float64  # (d,) float64 mean of the query vectors
    query_covariance: Float64  # (d, d) float64 covariance of the query vectors
    read: Read | None = None  # reads documents; None if every call passes them

    @classmethod
    def of(cls, partners: tuple[Float64, Float64], queries: QueryVectors, read: Read | None = None) -> Self:
        """Measure the background of a corpus; `partners`: mean and covariance of the document vectors."""
        return cls(*partners, *mean_and_covariance(dense_of(queries)), read)

    def rows(self, positions: NDArray[np.int64], results: ReadDocuments | None = None) -> Float32:
        """Return the five numbers of documents, (…, 5) float32, equal to `Background.rows` up to float32 rounding.

        Args:
            positions: int64 positions of any shape (…).
            results: Documents at these positions; None to read every distinct one once.
        """
        partners, queries = (self.mean, self.covariance), (self.query_mean, self.query_covariance)
        if results is not None:
            return _document_rows(results, partners, queries)
        if self.read is None:
            raise ValueError("pass the documents, or a way to read them")
        distinct, places = np.unique(positions, return_inverse=True)
        rows = np.empty((len(distinct), 5), dtype=np.float32)
        for start in range(0, len(distinct), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows[block] = _document_rows(self.read(distinct[block]), partners, queries)
        return rows[places.reshape(positions.shape)]

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
    """Compute the five numbers of documents, (…, 5) float32."""
    lengths = documents.lengths
    vectors = documents.vectors.reshape(lengths.size, len(partners[0]))
    columns = [
        *similarity_moments(vectors, *partners),
        *similarity_moments(vectors, *queries),
        np.log1p(lengths.reshape(-1)),
    ]
    return np.column_stack(columns).astype(np.float32).reshape(*lengths.shape, 5)


def similarity_moments(vectors: Float32, mean: Float64, covariance: Float64) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of every vector's similarity with a random partner, (n,) float64 each."""
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


def features(
    scores: Float32,
    query_background: tuple[Float64, Float64],
    documents: Float32,
    k: int,
    ranks: NDArray[np.int64] | None = None,
) -> Float64:
    """Compute the features of all results, (n, w, len(FEATURES)) float64.

    Args:
        scores: (n, w) float32, best first.
        documents: (n, w, 5) float32, result of `Background.rows`.
        k: Features of the list use only its first k results, so an estimate does not depend on the number of requested
            results.
        ranks: (w,) int64 ranks of the results, from 1, if the list has gaps beyond the first k; None without gaps.
    """
    s = scores.astype(np.float64)
    head = s[:, :k]
    mean, deviation = (column[:, None] for column in query_background)
    background = documents.astype(np.float64)
    query_z = (s - mean) / deviation
    # Of the document among documents, and among queries: (n, w, 2).
    z = (s[..., None] - background[..., 0:4:2]) / background[..., 1:4:2]
    mean_score = head.sum(axis=1, keepdims=True) / head.shape[1]
    values = np.zeros((*s.shape, len(FEATURES)))
    values[..., 0] = s
    values[..., 1] = relative(scores)
    values[:, : head.shape[1] - 1, 2] = head[:, :-1] - head[:, 1:]
    values[..., 3] = np.log(np.arange(1, s.shape[1] + 1) if ranks is None else ranks)
    values[..., 4] = head[:, :1]
    values[..., 5] = mean_score
    values[..., 6] = np.sqrt(np.square(head - mean_score).sum(axis=1, keepdims=True) / head.shape[1])
    values[..., 7] = values[:, :1, 2]
    values[..., 8] = query_z
    values[..., 9] = query_z[:, :1]
    values[..., 10] = query_z[:, :1] - query_z
    values[..., 11:14:2] = z
    values[..., 12:15:2] = z[:, :k].max(axis=1, keepdims=True) - z
    values[..., 15] = background[..., 4]
    return values


@dataclass(frozen=True)
class BetaCalibration:
    """A strictly rising map of a probability p to the log-odds a · ln p − b · ln(1 − p) + c, with a and b above 0.

    Beta calibration (Kull, Silva Filho and Flach, "Beta calibration: a well-founded and easily implemented improvement
    on logistic calibration for binary classifiers", AISTATS 2017). a = b is Platt scaling; 1, 1, 0 changes nothing.
    """

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0

    @property
    def kind(self) -> Literal["beta", "platt", "none"]:
        """The kind of the map."""
        if self.a != self.b:
            return "beta"
        return "none" if (self.a, self.c) == (1.0, 0.0) else "platt"

    def apply(self, log_odds: Float64) -> Float64:
        """Recalibrate log-odds of p, of any shape."""
        if self.a == self.b:  # exact, so releases of versions without the map keep their values
            return self.a * log_odds + self.c
        negative_log = np.logaddexp(0.0, log_odds)  # −ln(1 − p); ln p is the log-odds minus that
        mapped: Float64 = self.a * (log_odds - negative_log) + self.b * negative_log + self.c
        return mapped


@dataclass(frozen=True)
class OnTopic:
    """The probability that a query is about the documents, a logistic model of QUERY_FEATURES.

    It is a factor of the relevance of all results of the query, so it does not change their order.
    """

    intercept: float  # log-odds of a query whose features are 0
    best_score: float
    best_query_z: float

    def times(self, log_odds: Float64, values: Float64) -> Float64:
        """Return the log-odds of the product of this probability and that of a result.

        Args:
            log_odds: (…) log-odds of the result if the query is about the documents.
            values: (…, len(FEATURES)) float64 features of the result.
        """
        weights = np.array([self.best_score, self.best_query_z])
        on_topic = self.intercept + values[..., _QUERY_COLUMNS] @ weights
        product = np.minimum(-np.logaddexp(0.0, -log_odds) - np.logaddexp(0.0, -on_topic), _MAX_LOG_PROBABILITY)
        joint: Float64 = product - np.log(-np.expm1(product))
        return joint


@dataclass(frozen=True)
class Logistic:
    """A logistic model of F features: log-odds = intercept + Σ weights · (feature − center) / scale, recalibrated."""

    center: Float64  # (F,) float64, subtracted from the features
    scale: Float64  # (F,) float64, divides the centred features
    weights: Float64  # (F,) float64
    intercept: float  # added to the weighted sum
    recalibration: BetaCalibration = BetaCalibration()  # map of the log-odds, by default the identity
    # factor of the probability before it is recalibrated; None for 1. Its features are FEATURES
    on_topic: OnTopic | None = None

    def log_odds(self, values: Float64) -> Float64:
        """Return the log-odds of features, (…, F) float64; the result is (…)."""
        log_odds = self.intercept + ((values - self.center) / self.scale) @ self.weights
        return self.recalibration.apply(log_odds if self.on_topic is None else self.on_topic.times(log_odds, values))

    def probability(self, values: Float64) -> Float64:
        """Return the probability of features, (…, F) float64; the result is (…)."""
        result: Float64 = 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(self.log_odds(values), -700), 700)))
        return result

    def arrays(self, k: int) -> Arrays:
        """Return the model as arrays for a file, with the number of results per query in the fit."""
        arrays = {name: np.atleast_1d(getattr(self, name)) for name in ("center", "scale", "weights", "intercept")}
        arrays |= {"k": np.array([k]), _RECALIBRATION: np.array(astuple(self.recalibration))}
        return arrays if self.on_topic is None else arrays | {_ON_TOPIC: np.array(astuple(self.on_topic))}

    @staticmethod
    def shapes(features: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of `arrays` by name, for a model of so many features without `on_topic`."""
        of_features = dict.fromkeys(("center", "scale", "weights"), (features,))
        return {**of_features, "intercept": (1,), "k": (1,), _RECALIBRATION: (3,)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self | None:
        """Return the model that `arrays` returned, given arrays of the right shapes; None if a value is impossible."""
        finite = all(np.isfinite(array).all() for array in arrays.values())
        valid_k = arrays["k"].dtype == np.int64 and arrays["k"][0] >= 1
        rises = (arrays[_RECALIBRATION][:2] > 0).all()
        if not (finite and valid_k and rises and (arrays["scale"] > 0).all()):
            return None
        on_topic = OnTopic(*arrays[_ON_TOPIC].tolist()) if _ON_TOPIC in arrays else None
        recalibration = BetaCalibration(*arrays[_RECALIBRATION].tolist())
        center, scale, weights = (arrays[name] for name in ("center", "scale", "weights"))
        return cls(center, scale, weights, float(arrays["intercept"][0]), recalibration, on_topic)


@dataclass(frozen=True)
class Relevance:
    """Estimates the probability that a result is relevant."""

    model: Logistic
    background: Background | ComputedBackground
    k: int  # number of results per query in the fit

    @property
    def features(self) -> list[str]:
        """Names of the features, in their order."""
        return [*FEATURES]

    def estimate(
        self,
        queries: QueryVectors,
        top: Ranking,
        ranks: NDArray[np.int64] | None = None,
        results: ReadDocuments | None = None,
    ) -> Float32:
        """Return the probabilities that the results are relevant, (n, w) float32.

        Computed in float64 and rounded once, so batching affects probabilities about as rarely as in `similarity`.

        Args:
            ranks: See `features`.
            results: (n, w) documents of the results if the search returned them; see `ComputedBackground.rows`.
        """
        if not top.scores.size:
            return np.empty(top.scores.shape, dtype=np.float32)
        documents = self.background.rows(top.positions, results)
        values = features(top.scores, self.background.of_queries(queries), documents, self.k, ranks)
        return self.model.probability(values).astype(np.float32)

    def reading(self, read: Read) -> Self:
        """Return a copy that reads documents with `read` if they are not in the release."""
        background = self.background.reading(read)
        return self if background is self.background else replace(self, background=background)

    def save(self, path: Path) -> None:
        """Write the model to one safetensors file."""
        write_tensors(path, self.model.arrays(self.k) | self.background.arrays())

    @classmethod
    def load(cls, path: Path, dimension: int, documents: int | None) -> Self:
        """Read the file that `save` wrote; `documents`: their number in the index, None if they are in an engine."""
        expected = Logistic.shapes(len(FEATURES)) | {"mean": (dimension,), "covariance": (dimension, dimension)}
        if documents is None:
            expected |= {"asked_mean": (dimension,), "asked_covariance": (dimension, dimension)}
        else:
            expected |= {"documents": (documents, 5)}
        # Releases of earlier versions have no map, and releases that refuse no query have no factor.
        arrays = {_RECALIBRATION: np.array(astuple(BetaCalibration())), **read_tensors(path)}
        expected |= {_ON_TOPIC: (3,)} if _ON_TOPIC in arrays else {}
        fits = {name: array.shape for name, array in arrays.items()} == expected and _has_deviations(arrays)
        model = Logistic.from_arrays(arrays) if fits else None
        if model is None:
            raise ReleaseError(f"{path}: does not hold a relevance model for this index; calibrate again")
        partners = arrays["mean"], arrays["covariance"]
        background: Background | ComputedBackground
        if documents is None:
            background = ComputedBackground(*partners, arrays["asked_mean"], arrays["asked_covariance"])
        else:
            background = Background(*partners, arrays["documents"])
        return cls(model, background, int(arrays["k"][0]))


def _has_deviations(arrays: Arrays) -> bool:
    """Return whether the stored standard deviations, which divide, are above 0; computed ones are."""
    return "documents" not in arrays or bool((arrays["documents"][:, [1, 3]] > 0).all())
