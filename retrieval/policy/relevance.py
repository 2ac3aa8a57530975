"""A logistic model of relevance, as plain numbers: what is fitted at calibration and evaluated for every reply."""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from taugate.errors import ReleaseError
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import relative
from taugate.retrieval.vectors.similarity import Float32, moments
from taugate.storage.tensors import read_tensors

Float64 = NDArray[np.float64]
# Below this a standard deviation is rounding: float32 vectors that are all the same.
_SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True)
class Background:
    """Statistics of similarity with random partners.

    mean: (d,) and covariance: (d, d) float64 of the document vectors; documents: (N, 5) float32, of each document mean
    and standard deviation of its similarity with documents, the same with queries, and log(1 + its length in bytes).
    """

    mean: Float64
    covariance: Float64
    documents: Float32

    @classmethod
    def of(cls, documents: Float32, queries: Float32, lengths: NDArray[np.int64]) -> Self:
        """documents: (N, d), queries: (q, d) unit vectors; lengths: (N,) bytes of text of each document."""
        mean, covariance = mean_and_covariance(documents)
        stored = np.column_stack(
            [
                *against(documents, mean, covariance),
                *against(documents, *mean_and_covariance(queries)),
                np.log1p(lengths),
            ]
        )
        return cls(mean, covariance, stored.astype(np.float32))

    def of_queries(self, queries: Float32) -> tuple[Float64, Float64]:
        """Mean and standard deviation of each query's similarity with a random document, (n,) each."""
        return against(queries, self.mean, self.covariance)


def mean_and_covariance(vectors: Float32) -> tuple[Float64, Float64]:
    """Mean (d,) and covariance (d, d) in float64."""
    mean, scatter = moments(vectors)
    return mean, scatter / len(vectors)


def against(vectors: Float32, mean: Float64, covariance: Float64) -> tuple[Float64, Float64]:
    """Mean and standard deviation of vᵀx for x with the given moments, for each v."""
    wide = vectors.astype(np.float64)
    variance = np.einsum("nd,nd->n", wide @ covariance, wide)
    deviation: Float64 = np.sqrt(np.maximum(variance, _SMALLEST_DEVIATION**2))
    return wide @ mean, deviation


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


def features(scores: Float32, query_background: tuple[Float64, Float64], documents: Float32, k: int) -> Float64:
    """Features of each result, (n, w, len(FEATURES)).

    scores: (n, w) float32, best first; query_background: mean and deviation of each query, (n,) each; documents:
    (n, w, 5) float32 rows of `Background.documents`. k: what describes the list is taken from its first k results, so
    that an estimate does not depend on how many results were asked for.
    """
    s = scores.astype(np.float64)
    head = s[:, :k]
    mean, deviation = (each[:, None] for each in query_background)
    background = documents.astype(np.float64)
    query_z = (s - mean) / deviation
    document_z = (s - background[..., 0]) / background[..., 1]
    asked_z = (s - background[..., 2]) / background[..., 3]
    gap = np.zeros_like(s)
    gap[:, : head.shape[1] - 1] = head[:, :-1] - head[:, 1:]
    columns = [
        s,
        relative(scores),
        gap,
        np.log(np.arange(1, s.shape[1] + 1)),
        head[:, :1],
        head.mean(axis=1, keepdims=True),
        head.std(axis=1, keepdims=True),
        gap[:, :1],
        query_z,
        query_z[:, :1],
        query_z[:, :1] - query_z,
        document_z,
        document_z[:, :k].max(axis=1, keepdims=True) - document_z,
        asked_z,
        asked_z[:, :k].max(axis=1, keepdims=True) - asked_z,
        background[..., 4],
    ]
    values = np.empty((*s.shape, len(FEATURES)))
    for place, column in enumerate(columns):
        values[..., place] = column
    return values


_RECALIBRATION = "recalibration"


@dataclass(frozen=True)
class Recalibration:
    """log-odds a · ln p − b · ln(1 − p) + c of a probability p, with a and b above 0, so that the map rises strictly.

    Beta calibration (Kull, Silva Filho and Flach, "Beta calibration: a well-founded and easily implemented improvement
    on logistic calibration for binary classifiers", AISTATS 2017). a = b is Platt's line; 1, 1, 0 changes nothing.
    """

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0

    @property
    def kind(self) -> Literal["beta", "platt", "none"]:
        """Which map it is."""
        if self.a != self.b:
            return "beta"
        return "none" if (self.a, self.c) == (1.0, 0.0) else "platt"

    def of(self, odds: Float64) -> Float64:
        """Recalibrated log-odds; odds: log-odds of p, of any shape."""
        if self.a == self.b:  # exact, so that a release from before there was a map says what it said
            return self.a * odds + self.c
        against = np.logaddexp(0.0, odds)  # −ln(1 − p), and ln p is odds less that
        mapped: Float64 = self.a * (odds - against) + self.b * against + self.c
        return mapped


@dataclass(frozen=True)
class Logistic:
    """log-odds = intercept + Σ weights · (feature − center) / scale, then recalibrated.

    center, scale, weights: (F,) float64.
    """

    center: Float64
    scale: Float64
    weights: Float64
    intercept: float
    recalibration: Recalibration = Recalibration()

    def log_odds(self, values: Float64) -> Float64:
        """Log-odds of relevance; values: (…, F) features. Returns (…)."""
        return self.recalibration.of(self.intercept + ((values - self.center) / self.scale) @ self.weights)

    def probability(self, values: Float64) -> Float64:
        """Probability of relevance; values: (…, F) features. Returns (…)."""
        result: Float64 = 1.0 / (1.0 + np.exp(-np.clip(self.log_odds(values), -700, 700)))
        return result


@dataclass(frozen=True)
class Relevance:
    """The model, the background that its features need, and the K it was fitted at."""

    model: Logistic
    background: Background
    k: int

    def estimate(self, queries: Float32, top: TopK) -> Float32:
        """Probability that each result is relevant, (n, w) float32; queries: (n, d) of `top`, which has n rows.

        Computed in float64 and rounded once, so that how a batch was split, which moves the last bits of a product of
        matrices, shows about as rarely as in `similarity`.
        """
        if not top.scores.size:
            return np.empty(top.scores.shape, dtype=np.float32)
        documents = self.background.documents[top.positions]
        values = features(top.scores, self.background.of_queries(queries), documents, self.k)
        return self.model.probability(values).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write arrays, and nothing else, to one safetensors file."""
        arrays = {name: np.atleast_1d(getattr(self.model, name)) for name in ("center", "scale", "weights")}
        arrays |= {"intercept": np.array([self.model.intercept]), "k": np.array([self.k])}
        arrays |= {_RECALIBRATION: np.array(astuple(self.model.recalibration))}
        arrays |= {name: getattr(self.background, name) for name in ("mean", "covariance", "documents")}
        path.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    @classmethod
    def load(cls, path: Path, dimension: int, documents: int) -> Self:
        """Read what `save` wrote for an index of so many documents. Raises ReleaseError when it is anything else."""
        expected: dict[str, tuple[int, ...]] = {name: (len(FEATURES),) for name in ("center", "scale", "weights")}
        expected |= {"intercept": (1,), "k": (1,), "mean": (dimension,), "covariance": (dimension, dimension)}
        expected |= {"documents": (documents, 5), _RECALIBRATION: (3,)}
        arrays = {_RECALIBRATION: np.array(astuple(Recalibration())), **read_tensors(path)}
        # (a release from before there was a map has none)
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != expected or not all(np.isfinite(array).all() for array in arrays.values()) or not _usable(arrays):
            raise ReleaseError(f"{path}: does not hold a relevance model for this index; calibrate again")
        recalibration = Recalibration(*arrays[_RECALIBRATION].tolist())
        intercept = float(arrays["intercept"][0])
        model = Logistic(arrays["center"], arrays["scale"], arrays["weights"], intercept, recalibration)
        background = Background(arrays["mean"], arrays["covariance"], arrays["documents"])
        return cls(model, background, int(arrays["k"][0]))


def _usable(arrays: dict[str, NDArray[Any]]) -> bool:
    """Numbers that nothing divides by zero, and a K that is one."""
    deviations = arrays["documents"][:, [1, 3]]
    whole = arrays["k"].dtype == np.int64 and arrays["k"][0] >= 1
    rises = (arrays[_RECALIBRATION][:2] > 0).all()
    return bool(whole and rises and (arrays["scale"] > 0).all() and (deviations > 0).all())
