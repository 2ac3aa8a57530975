"""The probability that a result is relevant, from its scores alone: that of a retriever, and those of its components.

Rank fusion throws away how similar a result is; the component scores have it, see `component_signals`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from taugate.errors import ReleaseError
from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.component_signals import fill_missing
from taugate.retrieval.policy.policy import gap, relative
from taugate.retrieval.policy.relevance import Logistic
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors, write_tensors

SCORE_FEATURES = (
    "score",
    "relative_score",
    "gap_to_best",
    "gap_to_next",  # 0 for the last of the K
    "log_rank",
    "best_score",
    "mean_score",  # of the K
    "score_deviation",  # of the K
    "gap_after_best",
)
COMPONENT_FEATURES = ("score", "gap_to_best", "best_score", "log_rank", "missing")


def feature_names(components: tuple[str, ...]) -> list[str]:
    """Return the names of all features, in their order."""
    return [*SCORE_FEATURES, *(f"{name}: {feature}" for name in components for feature in COMPONENT_FEATURES)]


def score_features(scores: Float32, components: Mapping[str, Float32], floors: Mapping[str, float], k: int) -> Float64:
    """Compute the features of all results, (n, w, F) float64.

    Args:
        scores: (n, w) float32, best first.
        components: Further scores by name, (n, w) float32 each, NaN for a missing one.
        floors: For each component, the score of a result if no result of the query has one.
        k: Features of the list use only its first k results.
    """
    s = scores.astype(np.float64)
    head = s[:, :k]
    after = np.zeros_like(s)
    after[:, : head.shape[1] - 1] = head[:, :-1] - head[:, 1:]
    columns = [
        s,
        relative(scores),
        gap(scores),
        after,
        np.log(np.arange(1, s.shape[1] + 1)),
        head[:, :1],
        head.mean(axis=1, keepdims=True),
        head.std(axis=1, keepdims=True),
        after[:, :1],
    ]
    for name, floor in floors.items():
        columns += _component_columns(components[name].astype(np.float64), floor, k)
    return np.stack([np.broadcast_to(column, s.shape) for column in columns], axis=-1)


def _component_columns(given: Float64, floor: float, k: int) -> list[Float64]:
    """Return the columns of COMPONENT_FEATURES for one component, (n, w) or (n, 1) each."""
    values = fill_missing(given, floor, k)
    best = values[:, :k].max(axis=1, keepdims=True)
    above = (values[:, :k, None] > values[:, None, :]).sum(axis=1)  # results among the first k that score higher
    return [values, values - best, best, np.log1p(above), np.isnan(given).astype(np.float64)]


@dataclass(frozen=True)
class ScoreRelevance:
    """Estimates the probability that a result is relevant, by its scores.

    Attributes:
        model: Model of the features.
        floors: Lowest score of each component in the calibration, by name, in the order of the features.
        k: Number of results per query in the fit.
    """

    model: Logistic
    floors: Mapping[str, float]
    k: int

    @property
    def features(self) -> list[str]:
        """Names of the features, in their order."""
        return feature_names(tuple(self.floors))

    def estimate(self, scores: Float32, components: Mapping[str, Float32]) -> Float32:
        """Return the probabilities that results are relevant, (n, w) float32; see `score_features`."""
        return self.model.probability(score_features(scores, components, self.floors, self.k)).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write the model to one safetensors file."""
        floors = np.array([*self.floors.values()], dtype=np.float64)
        write_tensors(path, self.model.arrays(self.k) | {"floors": floors})

    @classmethod
    def load(cls, path: Path, components: tuple[str, ...]) -> Self:
        """Read the file that `save` wrote.

        Args:
            path: File with the model.
            components: Names of the component scores.

        Raises:
            ReleaseError: If it holds anything else.
        """
        arrays = read_tensors(path)
        expected = Logistic.shapes(len(feature_names(components))) | {"floors": (len(components),)}
        fits = {name: array.shape for name, array in arrays.items()} == expected
        model = Logistic.from_arrays(arrays) if fits else None
        if model is None:
            raise ReleaseError(f"{path}: does not hold a relevance model of these scores; calibrate again")
        floors = dict(zip(components, arrays["floors"].tolist(), strict=True))
        return cls(model, floors, int(arrays["k"][0]))
