"""Correlations of the papers' measures over several releases of one data set: their Table 3, for your encoders."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taugate.retrieval.release.manifest import Manifest

FEWEST_RELEASES = 3  # two points always correlate perfectly

_PAIRS = (
    ("accuracy", "coe"),
    ("accuracy", "roe"),
    ("accuracy", "τ"),
    ("τ", "roe"),
    ("accuracy", "I_A"),
    ("accuracy", "I_B"),
)


@dataclass(frozen=True)
class Correlations:
    """Pearson correlations between pairs of measures, over the releases of one data set and K.

    data: name of the data set. k: K. releases: how many, each of another encoder. values: by pair of measures; None
    where one of the two never changes.
    """

    data: str
    k: int
    releases: int
    values: dict[tuple[str, str], float | None]


def correlations(manifests: Sequence[Manifest]) -> list[Correlations]:
    """Correlate the measures of releases that can be compared (thresholds paper §4, Table 3).

    The measures are bootstrapped means of the calibration queries, and τ(ψ) of the papers' rule whether or not it is in
    force. Of several releases with one encoder the last counts: they differ in nothing that is compared here.

    manifests: of the releases, oldest first. Returns one result for each data set, K and way to measure with three
    encoders or more.
    """
    groups: dict[str, dict[str, Manifest]] = {}
    for manifest in manifests:
        groups.setdefault(repr(_comparison_key(manifest)), {})[manifest.encoder.sha256] = manifest
    return [
        Correlations(first.data.name, first.policy.k, len(group), _correlate(list(group.values())))
        for group in groups.values()
        if len(group) >= FEWEST_RELEASES and (first := next(iter(group.values())))
    ]


def _comparison_key(manifest: Manifest) -> tuple[object, ...]:
    """Return what two releases have in common where they can be compared: data, draws and the policy's metric."""
    data = manifest.data
    digests = (data.sha256["corpus"], data.sha256["queries"], data.sha256["qrels"])
    return (data.name, data.split, *digests, manifest.bootstrap, manifest.policy.k, manifest.policy.metric)


def _correlate(manifests: Sequence[Manifest]) -> dict[tuple[str, str], float | None]:
    columns = {name: np.array([row[name] for row in map(_row, manifests)]) for name in _row(manifests[0])}
    return {(x, y): _pearson(columns[x], columns[y]) for x, y in _PAIRS}


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


def _papers_tau(manifest: Manifest) -> float:
    if manifest.policy.method == "bootstrap":
        tau = manifest.policy.tau
    else:
        tau = next((other.tau for other in manifest.alternatives if other.method == "bootstrap"), None)
    return float("nan") if tau is None else tau
