"""Worlds with a known loss: labels drawn query by query certify by the exact binomial, labels drawn by document do not.

A query is lost if its score is below τ. Queries about one document have scores near that of the document, so they are
lost together.
"""

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.risk.certify import LossLimit, certify
from taugate.calibration.risk.steps import LossSteps
from taugate.calibration.settings.rules import ThresholdRule

DRAWS = 400
DELTA = 0.05
NOISE = 0.1  # standard deviation of the scores of one document's queries; between documents it is 1
LABELS = 400
RULE = ThresholdRule("risk-control", "similarity", max_loss=DELTA)


def certified(scores: np.ndarray, units: SamplingUnits) -> float:
    """τ as it is certified for queries with these scores, or none, which loses nothing."""
    steps = LossSteps.of_empty(scores[:, None].astype(np.float32), units)
    tau = certify([LossLimit("empty", steps, DELTA)], RULE).tau
    return -np.inf if tau is None else tau


def popularity(world: int) -> np.ndarray:
    """Share of each of 1,000 documents among the queries: equal, by Zipf's law, or a tenth about one document."""
    shares = [np.ones(1000), 1 / np.arange(1, 1001), np.r_[111.0, np.ones(999)]][world]
    return shares / shares.sum()


@pytest.mark.parametrize("world", [0, 1, 2])
def test_queries_drawn_one_by_one_certify_at_stated_rate(world: int) -> None:
    rng, shares = np.random.default_rng(world), popularity(world)
    wrong = 0
    for _ in range(DRAWS):
        documents = rng.normal(size=len(shares))
        drawn = rng.choice(len(shares), size=LABELS, p=shares)
        scores = documents[drawn] + NOISE * rng.normal(size=LABELS)
        tau = certified(scores, SamplingUnits.from_clusters(np.arange(LABELS)))
        wrong += float(shares @ stats.norm.cdf((tau - documents) / NOISE)) > DELTA
    assert wrong / DRAWS <= 0.05 + 2 * (0.05 * 0.95 / DRAWS) ** 0.5


@pytest.mark.parametrize(("unit", "low", "high"), [("query", 0.15, 1.0), ("document", 0.0, 0.05)])
def test_documents_drawn_need_documents_as_units(unit: str, low: float, high: float) -> None:
    """Ten queries about each of 100 documents that were drawn: counted one by one, the loss is often above δ."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(100), 10)
    units = SamplingUnits.from_clusters(np.arange(1000) if unit == "query" else clusters)
    wrong = 0
    for _ in range(DRAWS):
        tau = certified(rng.normal(size=100)[clusters] + NOISE * rng.normal(size=1000), units)
        wrong += float(stats.norm.cdf(tau / (1 + NOISE**2) ** 0.5)) > DELTA
    assert low <= wrong / DRAWS <= high
