"""A logistic model of relevance, as plain numbers: what is fitted at calibration and evaluated for every reply."""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from taugate.errors import ReleaseError
from taugate.retrieval.index.topk import TopK
from taugate.retrieval.policy.background import Background, Float64
from taugate.retrieval.policy.features import FEATURES, features
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors

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
