"""Count wrong promotions if both releases answered different queries."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.verdicts import ALPHA
from benchmarks.evidence.worlds import Structure, structures
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.calibration.comparison.decision import mean_difference
from taugate.calibration.comparison.rule import QuantitySample
from taugate.evidence.rules import CONFIDENCE

HEADING = "Size of promotion with other queries"
_TRIALS = 500  # two limits are found for each
_ACCURACY = 0.9
_MARGINS = (0.02, 0.05)
_SETS = ("100 × 10", "400 × 20", "squad_v2_dev", "mixed_large")
_WHOLE = {
    "whole documents": 1.0,
    "half by document": 0.5,
    "single queries": 0.0,
}  # share of documents that are all hit or miss
_ALLOWED = ALPHA + 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / _TRIALS))


def section(experiment: Experiment) -> str:
    """Simulate a release that is worse by the margin, and count how often it passes."""
    rows, worst = [], 0.0
    for structure in (each for each in structures(experiment) if each.name in _SETS):
        labels = structure.units.clusters
        for margin in _MARGINS:
            rng = np.random.default_rng([experiment.seed, 4])
            shares = [_passes(rng, structure, labels, margin, whole) for whole in _WHOLE.values()]
            worst = max(worst, *shares)
            rows.append([structure.name, share(margin, 2), *map(share, shares)])
    return f"""\
Each release answers queries of its own, about as many documents. The old one has an accuracy of {share(_ACCURACY, 1)}; the new one is worse by the
margin, so at most .05 of the {_TRIALS:,} trials may pass. Hits fall on whole documents, on single queries, or half on each. The largest share
is {share(worst)}, {verdict(reached=worst <= _ALLOWED)}.

{table(["documents", "margin", *_WHOLE], rows)}
"""


def _passes(
    rng: np.random.Generator, structure: Structure, labels: NDArray[np.int64], margin: float, whole: float
) -> float:
    passes = 0
    for _ in range(_TRIALS):
        old, new = (_sample(rng, structure, labels, accuracy, whole) for accuracy in (_ACCURACY, _ACCURACY - margin))
        passes += mean_difference(old, new, CONFIDENCE).upper <= margin
    return passes / _TRIALS


def _sample(
    rng: np.random.Generator, structure: Structure, labels: NDArray[np.int64], accuracy: float, whole: float
) -> QuantitySample:
    together = rng.random(len(structure.sizes)) < whole
    of_document = (rng.random(len(structure.sizes)) < accuracy)[labels]
    hits = np.where(together[labels], of_document, rng.random(len(labels)) < accuracy)
    return QuantitySample(hits.astype(np.float64), rng.integers(0, 2**63, len(labels)).astype(np.uint64), labels)
