"""The rules that the report shows beside the one in force: what each would keep and lose."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import alternatives, decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from tests.calibration.relevance.test_relevance_fit import QUERIES, World
from tests.evidence.threshold.labelled import AUTO, decisions, evidence, zero

RULES = {
    "papers": ThresholdRule("bootstrap", "similarity", max_loss=0.1),
    "high": AUTO,
    "expected": replace(AUTO, guarantee="expected-loss"),
    "paired": replace(AUTO, method="non-inferiority"),
    "named": replace(AUTO, policy="relative"),
}


@pytest.mark.parametrize("name", RULES)
def test_alternatives_are_other_rules(known: CalibrationQueries, name: str) -> None:
    rule = RULES[name]
    result = alternatives(rule, known, known.scored.take(known.calibration))
    expected = [("bootstrap", None), ("risk-control", 0.1), ("risk-control", 0.1)]
    if name in {"papers", "high", "expected", "named"}:
        del expected[0 if name == "papers" else 1]
    assert [(item.method, item.max_loss) for item in result] == expected
    if name != "papers":
        assert (result[0].policy, result[0].psi) == ("similarity", decide_policy(RULES["papers"], known).psi)
    message = [item.guarantee for item in result if item.method == "risk-control"]
    assert [("expected loss" in guarantee) for guarantee in message] == {
        "papers": [False, True],
        "high": [True],
        "expected": [False],
        "paired": [False, True],
        "named": [True],
    }[name]


def test_alternatives_record_kept_and_lost(known: CalibrationQueries) -> None:
    judged_on = np.arange(0, QUERIES, 3)
    for item in alternatives(RULES["paired"], known, known.scored.take(judged_on)):
        kept = decisions(known, item.policy)[judged_on] >= np.float32(item.tau)
        relevant = known.scored.judged.grades[judged_on] >= 1
        assert item.kept_fraction == pytest.approx(kept.mean())
        assert item.loss == pytest.approx((relevant.any(axis=1) & ~(relevant & kept).any(axis=1)).mean())


def test_uncertified_alternative_keeps_everything(known: CalibrationQueries) -> None:
    result = alternatives(replace(RULES["papers"], max_loss=0.01), known, known.scored.take(known.calibration))
    assert [(item.policy, item.tau, item.kept_fraction, item.loss) for item in result] == [("none", None, 1.0, 0.0)] * 2


def test_few_queries_give_relative_alternatives() -> None:
    few = evidence(World(), np.arange(25))
    result = alternatives(replace(RULES["papers"], max_loss=0.2), few, few.scored.take(few.calibration))
    assert [item.policy for item in result] == ["relative", "relative"]


def test_impossible_rules_are_no_alternatives() -> None:
    world = World()
    zero(world, np.arange(QUERIES))
    given = evidence(world)
    assert alternatives(RULES["papers"], given, given.scored.take(given.calibration)) == []
