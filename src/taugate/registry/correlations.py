"""Correlations of the papers' measures over several releases of one data set, as in Table 3 of the thresholds paper."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.methods import METHODS

MIN_RELEASES = 3  # two points always correlate perfectly

_PAIRS = (
    ("accuracy", "coe"),
    ("accuracy", "roe"),
    ("accuracy", "τ"),
    ("τ", "roe"),
    ("accuracy", "I_A"),
    ("accuracy", "I_B"),
)
# For releases whose encoders were measured by `taugate adapt`.
_ADAPTED_PAIRS = (
    ("accuracy", "separation"),
    ("accuracy", "familiarity"),
    ("accuracy", "β"),
    ("accuracy", "general NDCG@10"),
)


@dataclass(frozen=True)
class Correlations:
    """Pearson correlations between pairs of measures, over the releases of one data set and K.

    Attributes:
        data: Name of the data set.
        k: K.
        releases: Number of releases, each with another encoder.
        adapted: Number of releases with measures of `taugate adapt`.
        values: Correlation by pair of measures, None if one of the two is constant. Pairs with a measure of `taugate
            adapt` are correlated over the releases that have it, and left out if these are fewer than three.
    """

    data: str
    k: int
    releases: int
    adapted: int
    values: dict[tuple[str, str], float | None]


def correlations(manifests: Sequence[Manifest]) -> list[Correlations]:
    """Correlate the measures of comparable releases (thresholds paper §4, Table 3).

    The measures are bootstrapped means of the calibration queries, and τ(ψ) of the papers' rule whether or not it is
    the policy. Of several releases with one encoder the last is used: they have the same measures.

    Args:
        manifests: Manifests of the releases, oldest first.

    Returns:
        One result for each data set, K and way to measure with three encoders or more.
    """
    groups: dict[str, dict[str, Manifest]] = {}
    for manifest in manifests:
        groups.setdefault(repr(_comparison_key(manifest)), {})[manifest.answering.sha256] = manifest
    return [
        Correlations(
            first.data.name,
            first.policy.k,
            len(group),
            sum(map(_measured, group.values())),
            _correlate(list(group.values())),
        )
        for group in groups.values()
        if len(group) >= MIN_RELEASES and (first := next(iter(group.values())))
    ]


def _comparison_key(manifest: Manifest) -> tuple[object, ...]:
    """Return what two comparable releases have in common: data, draws and the policy's metric."""
    data = manifest.data
    digests = (data.sha256["corpus"], data.sha256["queries"], data.sha256["qrels"])
    return (data.name, data.split, *digests, manifest.bootstrap, manifest.policy.k, manifest.policy.metric)


def _correlate(manifests: Sequence[Manifest]) -> dict[tuple[str, str], float | None]:
    values = _pairs([_row(manifest) for manifest in manifests], _PAIRS)
    adapted = [_row(manifest) | _adapted_row(manifest) for manifest in manifests if _measured(manifest)]
    if len(adapted) >= MIN_RELEASES:
        values |= _pairs(adapted, _ADAPTED_PAIRS)
    return values


def _measured(manifest: Manifest) -> bool:
    """Return whether a release has the measures of `taugate adapt`."""
    return manifest.adaptation is not None and manifest.adaptation.measures is not None


def _pairs(
    rows: Sequence[Mapping[str, float]], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], float | None]:
    return {(x, y): _pearson(*(np.array([row[name] for row in rows]) for name in (x, y))) for x, y in pairs}


def _pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    if np.ptp(x) == 0 or np.ptp(y) == 0 or not np.isfinite(x + y).all():
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _row(manifest: Manifest) -> dict[str, float]:
    metrics = manifest.metrics["calibration"]
    return {
        "accuracy": metrics.accuracy.mean,
        "coe": metrics.coe.mean,
        "roe": math.nan if metrics.roe is None else metrics.roe.mean,
        "τ": _papers_tau(manifest),
        "I_A": manifest.isotropy.i_a,
        "I_B": manifest.isotropy.i_b,
    }


def _adapted_row(manifest: Manifest) -> dict[str, float]:
    """Return the measures of an adapted encoder, NaN for one that could not be measured."""
    measures = None if manifest.adaptation is None else manifest.adaptation.measures
    if measures is None:
        return {}
    law, separation = measures.spectrum.after, measures.separation.after.relative
    return {
        "separation": float("nan") if separation is None else separation,
        "familiarity": measures.familiarity.after,
        "β": float("nan") if law is None else law.beta.mean,
        "general NDCG@10": measures.forgetting.ndcg.after,
    }


def _papers_tau(manifest: Manifest) -> float:
    if METHODS[manifest.policy.method].of_papers:
        tau = manifest.policy.tau
    else:
        tau = next((other.tau for other in manifest.alternatives if METHODS[other.method].of_papers), None)
    return float("nan") if tau is None else tau
