"""What scores of a retriever are, and the probability that a result is relevant from its scores alone.

The best score of a rank fusion says little about the query, because some document is always first. The scores of its
components tell how similar the best documents are, and how far they stand out. A component that did not return a
document counts as the lowest score that it gave to a result of the query.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

import numpy as np

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32, Float64
from taugate.policy.policy import POLICIES, gap, relative
from taugate.policy.relevance import Logistic
from taugate.storage.tensors import read_tensors, write_tensors

ScoreScale = Literal["similarity", "distance", "logit"]
RerankerScale = Literal["similarity", "logit"]

Components = Mapping[str, Float32]  # further scores of results by name, (n, w) float32 each, NaN for a missing one
NO_COMPONENTS: Components = MappingProxyType({})
# No signal that was tried beside these helped with 60 to 800 queries of scifact and of squad_v2_dev: gaps between
# results, deviations, whether the components agree, missing scores; nor did boosted trees, or 20 results for five.
LOWEST = float(np.finfo(np.float32).min)
_SIGNALS = ("best_score", "gap_to_mean")

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


@dataclass(frozen=True)
class Scale:
    """A scale of scores."""

    plural: str
    note: str = ""  # what is known of a score, after its name; may be empty
    zero: bool = False  # whether a score of 0 means unrelated, so that a share of the best score means something
    sign: float = 1.0  # factor with which scores are compared, so that higher is better

    def check(self, policy: str, source: str) -> None:
        """Raise InputError if a policy means nothing on this scale, which `source` names."""
        if policy in POLICIES and POLICIES[policy].needs_zero and not self.zero:
            raise InputError(
                f"--policy {policy}: a share of the best score means nothing for {source}; give --policy gap, the "
                "difference from the best score"
            )


SCALES: Mapping[ScoreScale, Scale] = {
    "similarity": Scale("similarities", zero=True),
    "distance": Scale("distances, compared as negative numbers", " (the negative distance)", sign=-1.0),
    "logit": Scale("log-odds", " (log-odds)"),
}


def component_signal_names(components: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all signals, in their order, given the names of the component scores."""
    return ("best_similarity", *(f"{name}: {signal}" for name in components for signal in _SIGNALS))


def component_signals(scores: Float64, components: Components, floors: Mapping[str, float]) -> dict[str, Float64]:
    """Compute the signals of n queries by name, (n,) float64 each.

    Args:
        scores: (n, K) float64 fused scores of the first K results, best first.
        floors: For each component, the score of a result if no result of the query has one.
    """
    k = scores.shape[1]
    signals = {"best_similarity": scores[:, 0]}
    for name, floor in floors.items():
        values = fill_missing(components[name][:, :k].astype(np.float64), floor, k)
        best = values.max(axis=1)
        signals |= zip((f"{name}: {signal}" for signal in _SIGNALS), (best, best - values.mean(axis=1)), strict=True)
    return signals


def component_means(components: Components, k: int) -> Float32:
    """Return the mean score of each of C components among the first k results, (n, C) float32; LOWEST without any."""
    means = []
    for values in components.values():
        given = ~np.isnan(values[:, :k])
        total = np.where(given, values[:, :k], 0).sum(axis=1, dtype=np.float64)
        means.append(np.where(given.any(axis=1), total / np.maximum(given.sum(axis=1), 1), LOWEST))
    return np.array(means, dtype=np.float32).T


def fill_missing(given: Float64, floor: float, k: int) -> Float64:
    """Return the scores of a component, (n, w) float64, with a number for a missing one.

    Args:
        given: (n, w) float64, NaN for a missing score.
        floor: What a score counts as if none of the first k results has one.
        k: A missing score counts as the lowest of the first k results.
    """
    missing = np.isnan(given)
    lowest = np.where(missing[:, :k], np.inf, given[:, :k]).min(axis=1, keepdims=True)
    return np.where(missing, np.where(np.isinf(lowest), floor, lowest), given)


def feature_names(components: tuple[str, ...]) -> list[str]:
    """Return the names of all features, in their order."""
    return [*SCORE_FEATURES, *(f"{name}: {feature}" for name in components for feature in COMPONENT_FEATURES)]


def score_features(scores: Float32, components: Components, floors: Mapping[str, float], k: int) -> Float64:
    """Compute the features of all results, (n, w, F) float64.

    Args:
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
    """Estimates the probability that a result is relevant, by its scores."""

    model: Logistic
    # lowest score of each component in the calibration, by name, in the order of the features
    floors: Mapping[str, float]
    k: int  # number of results per query in the fit

    @property
    def features(self) -> list[str]:
        """Names of the features, in their order."""
        return feature_names(tuple(self.floors))

    def estimate(self, scores: Float32, components: Components) -> Float32:
        """Return the probabilities that results are relevant, (n, w) float32; see `score_features`."""
        return self.model.probability(score_features(scores, components, self.floors, self.k)).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write the model to one safetensors file."""
        floors = np.array([*self.floors.values()], dtype=np.float64)
        write_tensors(path, self.model.arrays(self.k) | {"floors": floors})

    @classmethod
    def load(cls, path: Path, components: tuple[str, ...]) -> Self:
        """Read the file that `save` wrote. Raises ReleaseError if it holds anything else."""
        arrays = read_tensors(path)
        expected = Logistic.shapes(len(feature_names(components))) | {"floors": (len(components),)}
        fits = {name: array.shape for name, array in arrays.items()} == expected
        model = Logistic.from_arrays(arrays) if fits else None
        if model is None:
            raise ReleaseError(f"{path}: does not hold a relevance model of these scores; calibrate again")
        floors = dict(zip(components, arrays["floors"].tolist(), strict=True))
        return cls(model, floors, int(arrays["k"][0]))
