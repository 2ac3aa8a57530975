"""Correlations of the papers' measures over several releases of one data set: their Table 3, for your encoders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.retrieval.release.manifest import Manifest

MIN_RELEASES = 3  # two points always correlate perfectly

_PAIRS = (
    ("accuracy", "coe"),
    ("accuracy", "roe"),
    ("accuracy", "τ"),
    ("τ", "roe"),
    ("accuracy", "I_A"),
    ("accuracy", "I_B"),
)
# Of releases whose encoders `taugate adapt` measured, beside those that it did not.
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
        releases: How many, each of another encoder.
        adapted: How many of them have what `taugate adapt` measures.
        values: By pair of measures; None where one of the two never changes. Pairs with such a measure are over those
            releases alone, and missing where they are fewer than three.
    """

    data: str
    k: int
    releases: int
    adapted: int
    values: dict[tuple[str, str], float | None]


def correlations(manifests: Sequence[Manifest]) -> list[Correlations]:
    """Correlate the measures of releases that can be compared (thresholds paper §4, Table 3).

    The measures are bootstrapped means of the calibration queries, and τ(ψ) of the papers' rule whether or not it is in
    force. Of several releases with one encoder the last counts: they differ in nothing that is compared here.

    Args:
        manifests: Of the releases, oldest first.

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
    """Return what two releases have in common where they can be compared: data, draws and the policy's metric."""
    data = manifest.data
    digests = (data.sha256["corpus"], data.sha256["queries"], data.sha256["qrels"])
    return (data.name, data.split, *digests, manifest.bootstrap, manifest.policy.k, manifest.policy.metric)


def _correlate(manifests: Sequence[Manifest]) -> dict[tuple[str, str], float | None]:
    found = _pairs([_row(manifest) for manifest in manifests], _PAIRS)
    adapted = [_row(manifest) | _adapted_row(manifest) for manifest in manifests if _measured(manifest)]
    if len(adapted) >= MIN_RELEASES:
        found |= _pairs(adapted, _ADAPTED_PAIRS)
    return found


def _measured(manifest: Manifest) -> bool:
    """Tell whether a release has what `taugate adapt` measures."""
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
        "roe": metrics.roe.mean,
        "τ": _papers_tau(manifest),
        "I_A": manifest.isotropy.i_a,
        "I_B": manifest.isotropy.i_b,
    }


def _adapted_row(manifest: Manifest) -> dict[str, float]:
    """Return the measures of an adapted encoder; none of what could not be measured."""
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
    if manifest.policy.method == "bootstrap":
        tau = manifest.policy.tau
    else:
        tau = next((other.tau for other in manifest.alternatives if other.method == "bootstrap"), None)
    return float("nan") if tau is None else tau
