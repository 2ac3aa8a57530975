"""Worlds with a known loss: labels drawn query by query certify by the exact binomial, labels drawn by document do not.

A query is lost if its score is below τ. Queries about one document have scores near that of the document, so they are
lost together.
"""

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.certify import LossLimit, certify, p_values
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import ThresholdRule

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
    exceeded = 0
    for _ in range(DRAWS):
        documents = rng.normal(size=len(shares))
        drawn = rng.choice(len(shares), size=LABELS, p=shares)
        scores = documents[drawn] + NOISE * rng.normal(size=LABELS)
        tau = certified(scores, SamplingUnits.from_clusters(np.arange(LABELS)))
        exceeded += float(shares @ stats.norm.cdf((tau - documents) / NOISE)) > DELTA
    assert exceeded / DRAWS <= 0.05 + 2 * (0.05 * 0.95 / DRAWS) ** 0.5


@pytest.mark.parametrize(("unit", "low", "high"), [("query", 0.15, 1.0), ("document", 0.0, 0.05)])
def test_documents_drawn_need_documents_as_units(unit: str, low: float, high: float) -> None:
    """Ten queries about each of 100 documents that were drawn: counted one by one, the loss is often above δ."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(100), 10)
    units = SamplingUnits.from_clusters(np.arange(1000) if unit == "query" else clusters)
    exceeded = 0
    for _ in range(DRAWS):
        tau = certified(rng.normal(size=100)[clusters] + NOISE * rng.normal(size=1000), units)
        exceeded += float(stats.norm.cdf(tau / (1 + NOISE**2) ** 0.5)) > DELTA
    assert low <= exceeded / DRAWS <= high


def test_capped_losses_are_weighted_means_of_documents() -> None:
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(6), [1, 2, 3, 9, 4, 1])
    units, scores = SamplingUnits.from_clusters(clusters).capped(3), rng.random(20).astype(np.float32)
    steps = LossSteps.of_empty(scores[:, None], units)
    for tau in np.linspace(0, 1, 11):
        lost = sum(
            min(3, (clusters == document).sum()) * float((scores[clusters == document] < tau).mean())
            for document in range(6)
        )
        assert float(steps.at(np.array([tau], dtype=np.float32))[0]) == pytest.approx(lost)
    assert (steps.total, steps.largest) == (1 + 2 + 3 + 3 + 3 + 1, 3)


def test_capped_loss_is_certified_at_stated_rate() -> None:
    """One document has a third of the queries: nothing can be certified, but the capped loss can, and it holds."""
    rng, sizes = np.random.default_rng(0), np.r_[300, np.full(200, 3)]
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    units = SamplingUnits.from_clusters(clusters)
    exceeded = nothing = 0
    for _ in range(DRAWS):
        scores = rng.normal(size=len(sizes))[clusters] + NOISE * rng.normal(size=len(clusters))
        assert certified(scores, units) == -np.inf
        tau = certified(scores, units.capped("auto"))
        nothing += tau == -np.inf
        exceeded += float(stats.norm.cdf(tau / (1 + NOISE**2) ** 0.5)) > DELTA  # of each document, so of any weights
    assert nothing == 0
    assert exceeded / DRAWS <= 0.05


@pytest.mark.parametrize("cap", [5, "auto", None, 10])
def test_large_documents_by_chance_hold_level(cap: int | str | None) -> None:
    """One document in 100 has ten queries, the others one, and only large ones are lost: few samples show them.

    The loss, with each document counted for at most so many queries as the statement says, is δ or more.
    """
    rng, sizes, of_size = np.random.default_rng(0), np.array([1, 10]), np.array([0.99, 0.01])
    counted = np.minimum(sizes, {"auto": 1, None: 8}.get(cap, cap))  # 98 % of the queries count with 8 or more each
    large_lost = min(1.0, DELTA * (of_size @ counted) / (of_size @ np.where(sizes > 1, counted, 0)))
    small_lost = (DELTA * (of_size @ counted) - of_size[1] * counted[1] * large_lost) / (of_size[0] * counted[0])
    lost, passed = np.array([small_lost, large_lost]), 0
    for _ in range(DRAWS):
        large = (rng.random(300) < 0.01).astype(int)
        scores = np.repeat((rng.random(300) >= lost[large]).astype(np.float32), sizes[large])
        units = SamplingUnits.from_clusters(np.repeat(np.arange(300), sizes[large])).capped(cap)  # type: ignore[arg-type]
        counts = np.minimum(sizes, units.cap or units.sizes().max())
        if (of_size * counts) @ lost >= DELTA * (of_size @ counts) - 1e-9:
            steps = LossSteps.of_empty(scores[:, None], units)
            passed += float(p_values(steps, DELTA)[steps.places(np.array([0.5], dtype=np.float32))[0]]) <= 0.05
    assert passed / DRAWS <= 0.05 + 2 * (0.05 * 0.95 / DRAWS) ** 0.5
