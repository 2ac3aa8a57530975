"""A decision, whatever its rule: every limit holds, repeated documents count, and the record says what was asked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import (
    bootstrap_threshold,
    decide_policy,
    unrestricted_threshold,
    with_unrestricted,
)
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.index.top_k import TopK
from tests.calibration.relevance.test_relevance_fit import QUERIES
from tests.evidence.threshold.labelled import conformal, decisions, exact, literal_tau


@pytest.mark.parametrize("policy", ["auto", "relative", "probability"])
def test_empty_limit_lowers_tau(known: CalibrationQueries, policy: str) -> None:
    free = decide_policy(ThresholdRule("risk-control", policy, max_loss=0.3), known)
    rule = ThresholdRule("risk-control", policy, max_loss=0.3, max_empty=0.08)
    result = decide_policy(rule, known)
    members = known.roles.not_fitting if policy == "probability" else known.calibration
    assert result.max_empty == 0.08
    assert [item.limit for item in result.certificates] == ["accuracy", "empty"]
    assert {item.queries for item in result.certificates} == {len(members)}
    empty = (decisions(known, result.kind)[members] < np.float32(result.tau)).all(axis=1).sum()
    assert result.certificates[1].loss == empty / len(members)
    assert exact(0.08)(int(empty), len(members))
    assert result.kind != free.kind or result.tau <= free.tau
    # A share of the best score leaves no query empty, so that it may go as far as the loss allows.
    assert result.kind == ("relative" if policy == "auto" else policy)


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [("non-inferiority", "high-probability"), ("risk-control", "high-probability"), ("risk-control", "expected-loss")],
)
def test_certificates_count_repeated_documents(known: CalibrationQueries, method: str, guarantee: str) -> None:
    rule = ThresholdRule(method, "similarity", guarantee=guarantee, max_loss=0.3)
    independent = decide_policy(rule, known)
    repeated = decide_policy(rule, replace(known, units=SamplingUnits.from_clusters(np.arange(QUERIES) // 3)))
    passes = conformal(0.3) if guarantee == "expected-loss" else exact(0.3)
    assert independent.tau == literal_tau(known, "similarity", known.calibration, passes)
    assert independent.certificates[0].effective_queries == QUERIES
    assert repeated.tau < independent.tau
    assert repeated.certificates[0].effective_queries == QUERIES / 3
    assert (independent.evidence.unit, repeated.evidence.unit) == ("query", "document")


@pytest.mark.slow
def test_correlated_losses_count_by_document() -> None:
    """60 documents of 10 queries, whose scores are the document's and whose hits are nobody's; the truth is known."""
    rng, rule, delta = np.random.default_rng(0), ThresholdRule("non-inferiority", "similarity", max_loss=0.05), 0.05
    labels, above, naive = np.repeat(np.arange(60), 10), 0, 0
    for _ in range(200):
        scores = 0.95 * rng.normal(size=60).repeat(10) + 0.31 * rng.normal(size=600)
        grades = (rng.random(600) < 0.8).astype(np.int64)
        top = TopK(scores[:, None].astype(np.float32), np.zeros((600, 1), dtype=np.int64))
        judged = JudgedQueries(top, grades[:, None], np.ones(600), top.scores[:, 0])
        scored, by_document = ScoredQueries(judged, top, None, None), SamplingUnits.from_clusters(labels)
        given = CalibrationQueries(scored, np.arange(600), np.zeros((1, 1)), None, None, by_document, 0)
        for item in (given, replace(given, units=SamplingUnits.from_clusters(np.arange(600)))):
            tau = decide_policy(rule, item).tau
            over = tau is not None and 0.8 * stats.norm.cdf(tau) > delta
            above, naive = above + (over and item is given), naive + (over and item is not given)
    assert above / 200 <= delta + 2 * np.sqrt(delta * (1 - delta) / 200)
    assert naive / 200 > 0.2


@pytest.mark.parametrize("metric", ["accuracy", "ndcg"])
def test_bootstrap_rule_gives_papers_threshold(known: CalibrationQueries, metric: str) -> None:
    result = decide_policy(ThresholdRule("bootstrap", "similarity", metric), known)
    literal = bootstrap_threshold(known.scored.judged.take(known.calibration), known.rows, metric)
    assert (result.kind, result.tau, result.psi, result.metric) == ("similarity", literal.tau, literal.psi, metric)
    assert (result.max_loss, result.max_empty, result.certificates, result.choice) == (None, None, [], None)
    assert result.guarantee.startswith("Nothing is certified")


def test_unrestricted_threshold_is_measured_on_other_queries(known: CalibrationQueries) -> None:
    policy = decide_policy(ThresholdRule("bootstrap", "similarity"), known)
    measured_on = known.scored.take(np.arange(0, len(known.scored.judged), 3))
    result = with_unrestricted(policy, known, measured_on)
    other = result.unrestricted
    assert other is not None
    assert result == policy.model_copy(update={"unrestricted": other}), "the papers' rule stays as it is"
    assert other.tau == unrestricted_threshold(known.scored.judged.take(known.calibration), known.rows)
    judged = measured_on.judged
    kept = judged.top.scores >= np.float32(other.tau)
    assert other.kept_fraction == pytest.approx(kept.mean())
    assert other.loss == pytest.approx((judged.accuracy() - judged.accuracy(kept)).mean())


def test_certified_policy_has_no_unrestricted_threshold(known: CalibrationQueries) -> None:
    policy = decide_policy(ThresholdRule("risk-control", "relative", max_loss=0.2), known)
    assert with_unrestricted(policy, known, known.scored) is policy
    assert "unrestricted" not in policy.model_dump(mode="json")


def test_record_holds_requested_rule(known: CalibrationQueries) -> None:
    result = decide_policy(ThresholdRule("risk-control", "relative", "ndcg", max_loss=0.2, confidence=0.8), known)
    assert isinstance(result, PolicyRecord)
    assert (result.method, result.metric, result.max_loss, result.confidence) == ("risk-control", "ndcg", 0.2, 0.8)
    assert result.certificates[0].limit == "ndcg"
    assert result.certificates[0].bound <= 0.2
