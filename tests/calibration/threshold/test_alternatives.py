"""The rules that the report shows beside the one in force: what each would keep and lose."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import alternatives, decide_policy
from tests.calibration.relevance.test_relevance_fit import QUERIES, World
from tests.calibration.threshold.labelled import AUTO, decisions, evidence, zero

RULES = {
    "papers": ThresholdRule("bootstrap", "similarity", max_loss=0.1),
    "high": AUTO,
    "expected": replace(AUTO, guarantee="expected-loss"),
    "paired": replace(AUTO, method="non-inferiority"),
    "named": replace(AUTO, policy="relative"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_alternatives_are_the_other_rules(known: CalibrationQueries, name: str) -> None:
    rule = RULES[name]
    found = alternatives(rule, known, known.calibration)
    expected = [("bootstrap", None), ("risk-control", 0.1), ("risk-control", 0.1)]
    if name in {"papers", "high", "expected", "named"}:
        del expected[0 if name == "papers" else 1]
    assert [(each.method, each.max_loss) for each in found] == expected
    if name != "papers":
        assert (found[0].policy, found[0].psi) == ("similarity", decide_policy(RULES["papers"], known).psi)
    said = [each.guarantee for each in found if each.method == "risk-control"]
    assert [("expected loss" in guarantee) for guarantee in said] == {
        "papers": [False, True],
        "high": [True],
        "expected": [False],
        "paired": [False, True],
        "named": [True],
    }[name]


def test_each_alternative_says_what_it_would_keep_and_lose(known: CalibrationQueries) -> None:
    judged_on = np.arange(0, QUERIES, 3)
    for each in alternatives(RULES["paired"], known, judged_on):
        kept = decisions(known, each.policy)[judged_on] >= np.float32(each.tau)
        relevant = known.scored.judged.grades[judged_on] >= 1
        assert each.kept_fraction == pytest.approx(kept.mean())
        assert each.loss == pytest.approx((relevant.any(axis=1) & ~(relevant & kept).any(axis=1)).mean())


def test_an_alternative_that_cannot_be_certified_keeps_everything(known: CalibrationQueries) -> None:
    found = alternatives(replace(RULES["papers"], max_loss=0.01), known, known.calibration)
    assert [(each.policy, each.tau, each.kept_fraction, each.loss) for each in found] == [("none", None, 1.0, 0.0)] * 2


def test_too_few_queries_leave_the_alternatives_without_a_model() -> None:
    few = evidence(World(), np.arange(25))
    found = alternatives(replace(RULES["papers"], max_loss=0.2), few, few.calibration)
    assert [each.policy for each in found] == ["relative", "relative"]


def test_what_cannot_be_had_is_no_alternative() -> None:
    world = World()
    zero(world, np.arange(QUERIES))
    given = evidence(world)
    assert alternatives(RULES["papers"], given, given.calibration) == []
