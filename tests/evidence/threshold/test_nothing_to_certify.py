"""Too few labels, or none that is found: no cut, or an error that says what to do."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from tests.calibration.relevance.test_relevance_fit import QUERIES, K, World
from tests.evidence.threshold.labelled import AUTO, EXPECTED, conformal, evidence, literal_tau, zero


def test_few_queries_name_number_needed(known: CalibrationQueries) -> None:
    result = decide_policy(replace(AUTO, max_loss=0.01), known)
    assert (result.kind, result.tau, result.psi, result.k) == ("none", None, None, K)
    assert f"with {QUERIES} queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in result.guarantee
    assert (result.certificates[0].queries, result.certificates[0].queries_needed) == (QUERIES, 299)
    assert {item.tau for item in result.choice.candidates} == {None}
    named = decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.01), known)
    assert f"with {QUERIES} queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in named.guarantee


def test_under_30_queries_refuse_probability() -> None:
    """`probability` is refused with what to do; `auto` is `relative`, whichever way it is to be certified."""
    world = World()
    with pytest.raises(InputError) as refusal:
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), evidence(world, np.arange(29)))
    for part in ("--policy probability", "30", "29", "label more"):
        assert part in str(refusal.value)
    assert (
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.5), evidence(world, np.arange(30))).tau
        is not None
    )
    for rule in (ThresholdRule("risk-control", "auto", max_loss=0.2), replace(EXPECTED, max_loss=0.2)):
        auto = decide_policy(rule, evidence(world, np.arange(29)))
        named = decide_policy(replace(rule, policy="relative"), evidence(world, np.arange(29)))
        assert (auto.kind, auto.tau, auto.certificates) == ("relative", named.tau, named.certificates)
        assert auto.choice is None
    assert (
        decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.2), evidence(world, np.arange(29))).tau
        is not None
    )


@pytest.mark.parametrize("policy", ["auto", "similarity", "relative", "probability"])
def test_no_hits_are_refused(policy: str) -> None:
    world = World()
    zero(world, np.arange(QUERIES))
    with pytest.raises(InputError, match="none of the 90 calibration queries has a relevant document in its top 5"):
        decide_policy(ThresholdRule("risk-control", policy, max_loss=0.1), evidence(world))


def test_missing_model_refuses_probability() -> None:
    world = World()
    zero(world, world.parts.fit)
    given = evidence(world)
    assert given.estimated is None
    with pytest.raises(InputError, match="--policy probability"):
        decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), given)
    assert decide_policy(AUTO, given).kind in {"relative", "similarity"}


def test_auto_without_model_is_relative() -> None:
    """No query that fits has a hit, so there is no model; all queries certify."""
    world = World()
    zero(world, world.parts.fit)
    given = evidence(world)
    result = decide_policy(EXPECTED, given)
    assert result.kind == "relative"
    assert result.tau == literal_tau(given, "relative", given.calibration, conformal(0.1))
    assert {item.kind for item in decide_policy(AUTO, given).choice.candidates} == {"relative", "similarity"}


def test_certifying_part_without_hits_is_named() -> None:
    """68 queries are enough for a loss of 10 %, for which it takes 9 on average: no shortage may be claimed."""
    world = World()
    zero(world, world.parts.not_fitting)
    try:
        message = decide_policy(EXPECTED, evidence(world)).guarantee
    except InputError as error:
        message = str(error)
    assert "are needed" not in message


def test_rare_hits_certify_largest_cut() -> None:
    """One hit in 90 queries, and one query in ten may be lost: its score passes, and it is the largest observed."""
    world = World()
    hit = int(np.flatnonzero(world.judged.accuracy())[0])
    zero(world, np.delete(np.arange(QUERIES), hit))
    given = evidence(world)
    result = decide_policy(ThresholdRule("risk-control", "similarity", max_loss=0.1), given)
    relevant = world.judged.grades[hit] >= 1
    assert result.tau == world.judged.top.scores[hit][relevant].max()
