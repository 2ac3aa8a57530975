"""Who certifies: all queries a policy that fits nothing, the model those that it was not fitted on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries, CertifiablePolicy
from taugate.policy.relevance import features
from taugate.retrieval.index.top_k import TopK
from tests.calibration.relevance.test_relevance_fit import QUERIES, K, World
from tests.evidence.threshold.labelled import (
    AUTO,
    EXPECTED,
    conformal,
    decisions,
    everything_is_relevant,
    evidence,
    exact,
    literal_tau,
    reverse,
    roll,
)


@pytest.mark.parametrize("kind", ["similarity", "relative"])
@pytest.mark.parametrize(("guarantee", "passes"), [("high-probability", exact(0.1)), ("expected-loss", conformal(0.1))])
def test_named_policy_uses_all_queries(
    known: CalibrationQueries, kind: str, guarantee: str, passes: Callable[[int, int], bool]
) -> None:
    result = decide_policy(ThresholdRule("risk-control", kind, guarantee=guarantee, max_loss=0.1), known)
    assert (result.kind, result.choice) == (kind, None)
    assert result.certificates[0].queries == QUERIES
    assert result.tau == literal_tau(known, kind, known.calibration, passes)


def test_probability_excludes_fitting_queries(known: CalibrationQueries) -> None:
    result = decide_policy(ThresholdRule("risk-control", "probability", max_loss=0.1), known)
    unseen = known.roles.not_fitting
    assert set(unseen.tolist()).isdisjoint(known.roles.fit.tolist())
    assert (result.kind, result.choice, result.certificates[0].queries) == ("probability", None, len(unseen))
    assert result.tau == literal_tau(known, "probability", unseen, exact(0.1))


def divided(given: CalibrationQueries, delta: float) -> dict[str, tuple[np.ndarray, float]]:
    """Who certifies each of two policies, with which error: a fifth for probability, and what is left for relative."""
    remaining = given.roles.not_fitting
    used = 0.01 if (1 - delta) ** len(remaining) <= 0.01 else 0.0
    return {"probability": (remaining, 0.01), "relative": (given.calibration, 0.05 - used)}


@pytest.mark.parametrize("delta", [0.06, 0.1, 0.2, 0.4])
def test_auto_divides_error_between_policies(known: CalibrationQueries, delta: float) -> None:
    result = decide_policy(replace(AUTO, max_loss=delta), known)
    taus, kept = {}, {}
    for kind, (members, error) in divided(known, delta).items():
        taus[kind] = literal_tau(known, kind, members, exact(delta, error))
        kept[kind] = (decisions(known, kind)[known.roles.not_fitting] >= np.float32(taus[kind] or 0)).mean()
    assert result.kind == min(kept, key=kept.get)
    assert result.tau == taus[result.kind]
    message = {item.kind: item for item in result.choice.candidates}
    assert {kind: item.tau for kind, item in message.items()} == taus
    assert {kind: item.kept_fraction for kind, item in message.items()} == pytest.approx(kept)
    assert result.certificates[0].queries == result.choice.certify_queries == len(divided(known, delta)[result.kind][0])
    assert (result.choice.fit_queries, result.choice.choose_queries) == (len(known.roles.fit), 0)


def two_equal_policies(rng: np.random.Generator, queries: int) -> CalibrationQueries:
    """Either loses τ of all queries, whatever the other loses: the only relevant result is the second of two."""
    scores = np.column_stack([np.ones(queries), rng.random(queries)]).astype(np.float32)
    top = TopK(scores, np.zeros((queries, 2), dtype=np.int64))
    grades = np.tile([0, 1], (queries, 1))
    relevance = np.column_stack([np.ones(queries), rng.random(queries)]).astype(np.float32)
    units = SamplingUnits.from_clusters(np.arange(queries))
    scored = ScoredQueries(JudgedQueries(top, grades, np.ones(queries), scores[:, 1]), top, relevance, relevance)
    parts = QueryRoles(np.arange(2), np.arange(2, queries), np.arange(2))
    return CalibrationQueries(scored, np.arange(queries), np.zeros((1, 1), np.int64), parts, None, units, 0)


def test_auto_choice_holds_confidence() -> None:
    """Of two policies the one that looks best is the one that was lucky: undivided, the error would be nearly twice."""
    rng, trials, delta = np.random.default_rng(0), 400, 0.1
    auto, undivided = 0, 0
    for _ in range(trials):
        given = two_equal_policies(rng, 321)  # for which the exact test of one policy errs in .0499 of the cases
        auto += (decide_policy(AUTO, given).tau or 0.0) > delta
        alone = [CertifiablePolicy(kind, given.calibration, AUTO) for kind in ("relative", "probability")]
        undivided += max(item.certify(given)[0].tau or 0.0 for item in alone) > delta
    assert auto / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)
    assert undivided / trials > 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_unused_error_goes_to_second_policy() -> None:
    """With 30 of 40 queries to certify it, probability cannot pass at 6 %; relative then needs no more than alone."""
    given = evidence(World(), np.arange(60))
    result = decide_policy(replace(AUTO, max_loss=0.05), given)
    alone = decide_policy(replace(AUTO, max_loss=0.05, policy="relative"), given)
    assert (result.kind, result.tau, result.certificates) == ("relative", alone.tau, alone.certificates)
    assert result.tau is not None


def test_impossible_limit_leaves_full_error(known: CalibrationQueries) -> None:
    """63 queries are enough for a loss of 30 % and too few for 4 % of empty replies."""
    rule = replace(AUTO, max_loss=0.3, max_empty=0.04)
    result, alone = decide_policy(rule, known), decide_policy(replace(rule, policy="relative"), known)
    assert (result.kind, result.tau, result.certificates) == ("relative", alone.tau, alone.certificates)
    assert result.tau is not None


def test_expected_loss_auto_is_probability(known: CalibrationQueries) -> None:
    """Nothing that errs can be divided, and a policy chosen by its cut would lose more on average."""
    named = decide_policy(replace(EXPECTED, policy="probability"), known)
    assert decide_policy(EXPECTED, known) == named
    assert (named.kind, named.choice, named.certificates[0].queries) == ("probability", None, 68)
    assert named.tau == literal_tau(known, "probability", known.roles.not_fitting, conformal(0.1))


def test_recalibration_changes_no_cut(known: CalibrationQueries) -> None:
    """It was fitted on the queries that certify, too; without it the same results are kept, on the same evidence."""
    estimated, judged = known.estimated, known.scored.judged
    world = World()
    documents = estimated.relevance.background.documents[judged.top.positions]
    values = features(judged.top.scores, estimated.relevance.background.of_queries(world.queries), documents, K)
    raw = estimated.fit.model.probability(values).astype(np.float32)
    assert np.abs(raw - estimated.answerable).max() > 0.01
    unscaled = replace(
        known,
        estimated=replace(estimated, answerable=raw),
        scored=ScoredQueries(judged, known.scored.unanswerable, raw, None),
    )
    for policy in ("auto", "probability"):
        rule = ThresholdRule("risk-control", policy, max_loss=0.1)
        before, after = decide_policy(rule, unscaled), decide_policy(rule, known)
        assert (before.kind, before.certificates) == (after.kind, after.certificates)
        if before.kind == "probability":
            assert before.tau != after.tau
            assert ((raw >= np.float32(before.tau)) == (estimated.answerable >= np.float32(after.tau))).all()


@pytest.mark.parametrize("corrupt", [roll, reverse, everything_is_relevant])
def test_bad_model_keeps_guarantee(known: CalibrationQueries, corrupt) -> None:
    """Labels of the queries that fit may be nonsense: what is said of the others remains true of them."""
    world = World()
    corrupt(world, world.parts.fit)
    changed = evidence(world)
    result = decide_policy(EXPECTED, changed)
    (certificate,) = result.certificates
    certify = changed.roles.not_fitting if result.kind == "probability" else changed.calibration
    kept = decisions(changed, result.kind)[certify] >= np.float32(result.tau)
    relevant = world.judged.grades[certify] >= 1
    lost = int((relevant.any(axis=1) & ~(relevant & kept).any(axis=1)).sum())
    assert certificate.loss == lost / len(certify)
    assert conformal(0.1)(lost, len(certify))
    assert certificate.bound <= 0.1
    assert result.tau == literal_tau(changed, result.kind, certify, conformal(0.1))


def test_queries_outside_calibration_change_nothing() -> None:
    calibration = np.arange(0, QUERIES, 2)
    world = World()
    before = decide_policy(AUTO, evidence(world, calibration))
    everything_is_relevant(world, np.arange(1, QUERIES, 2))
    assert decide_policy(AUTO, evidence(world, calibration)) == before
