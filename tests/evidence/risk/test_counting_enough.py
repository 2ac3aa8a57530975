"""The default cap falls, as far as a certificate needs it, by the numbers of queries alone."""

import numpy as np
import pytest

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.certify import LossLimit, counting_enough, p_values, statement_of
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import ThresholdRule

DELTA = 0.02
RULE = ThresholdRule("risk-control", "relative", max_loss=DELTA)
SIZES = np.repeat([1, 2, 3, 5, 8], [250, 110, 55, 12, 4])  # like the documents of scifact/train
DRAWS = 1000


def units_of(sizes: np.ndarray) -> SamplingUnits:
    return SamplingUnits.from_clusters(np.repeat(np.arange(len(sizes)), sizes)).capped(None)


def enough(units: SamplingUnits) -> SamplingUnits:
    return counting_enough(units, np.arange(len(units)), RULE)


def test_cap_falls_until_evidence_is_enough() -> None:
    before = units_of(SIZES)
    after = enough(before)
    assert (before.cap, after.cap) == (5, 4)
    needed = [
        statement_of(RULE).queries_needed(
            LossLimit("empty", LossSteps.of_empty(np.zeros((len(units), 1), np.float32), units), DELTA), RULE
        )
        for units in (before, after)
    ]
    assert needed[1] <= len(before) < needed[0]


@pytest.mark.parametrize("times", [1, 3])
def test_cap_stays_if_it_is_enough_or_none_is(times: int) -> None:
    sizes = np.tile(SIZES, 3) if times == 3 else SIZES[::2]
    units = units_of(sizes)
    assert enough(units) == units


def test_requested_cap_is_not_lowered() -> None:
    units = SamplingUnits.from_clusters(np.repeat(np.arange(len(SIZES)), SIZES)).capped(5)
    rule = ThresholdRule("risk-control", "relative", max_loss=DELTA, count_at_most=5)
    assert counting_enough(units, np.arange(len(units)), rule) is units


def test_half_of_the_queries_on_one_document_are_not_left_out() -> None:
    units = units_of(np.append(np.full(200, 2), 400))
    assert enough(units).cap == units.cap


def test_lowered_cap_holds_level_if_documents_are_drawn() -> None:
    """Only the largest documents lose, as much as the statement of the chosen cap allows."""
    rng, passed = np.random.default_rng(0), 0
    kinds, shares = np.unique(SIZES, return_counts=True)
    shares = shares / shares.sum()
    for _ in range(DRAWS):
        kind = rng.choice(len(kinds), size=len(SIZES), p=shares)
        units = enough(units_of(kinds[kind]))
        counted = np.minimum(kinds, units.cap or kinds.max())
        large = kinds >= 5
        lost = np.where(large, DELTA * (shares @ counted) / (shares[large] @ counted[large]), 0.0)
        scores = np.repeat((rng.random(len(kind)) >= lost[kind]).astype(np.float32), kinds[kind])
        steps = LossSteps.of_empty(scores[:, None], units)
        passed += float(p_values(steps, DELTA)[steps.places(np.array([0.5], dtype=np.float32))[0]]) <= 0.05
    assert passed / DRAWS <= 0.05 + 2 * (0.05 * 0.95 / DRAWS) ** 0.5
