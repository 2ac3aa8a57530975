"""The default refusal ρ: how it is chosen, what it is measured on, and that a certified loss includes it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, norm, skewnorm
from scipy.stats.distributions import rv_frozen

from taugate.data.questions import off_topic_table
from taugate.evidence.abstention.refusal import (
    RefusalEvidence,
    ScoredQuestions,
    can_limit,
    choose_rho,
    further_field_refused,
    planned_loss,
    share_at_most,
)
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import AnsweredQueries, JudgedQueries, ScoredQueries
from taugate.evidence.risk.certify import LossLimit, certify
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries, certifiable_rho
from taugate.policy.names import NO_CUT
from taugate.registry.catalog import find
from taugate.retrieval.index.top_k import TopK

DELTA = 0.05
DEFAULT = 0.015
CERTIFYING = ThresholdRule("risk-control", "similarity", max_loss=DELTA)


def float32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def singles(queries: int) -> SamplingUnits:
    return SamplingUnits.from_clusters(np.arange(queries))


def test_rho_is_at_the_lower_end_of_a_gap() -> None:
    right, off_topic = np.linspace(0.6, 0.9, 200, dtype=np.float32), np.linspace(0.1, 0.3, 100, dtype=np.float32)
    rho = choose_rho(right, [off_topic], DEFAULT)
    assert (off_topic < np.float32(rho)).mean() == pytest.approx(0.9)
    assert not (right < np.float32(rho)).any()


def test_rho_loses_at_most_the_planned_share_if_kinds_overlap() -> None:
    right = np.linspace(0.2, 0.9, 1000, dtype=np.float32)
    rho = choose_rho(right, [np.linspace(0.5, 0.8, 100, dtype=np.float32)], DEFAULT)
    assert (right < np.float32(rho)).sum() + 1 == 15  # of 1,001


def test_unanswerable_queries_raise_rho_to_the_planned_share() -> None:
    right, off_topic = np.linspace(0.5, 0.9, 400, dtype=np.float32), np.linspace(0.1, 0.3, 100, dtype=np.float32)
    rho = choose_rho(right, [off_topic, np.linspace(0.4, 0.8, 50, dtype=np.float32)], DEFAULT)
    assert 0.5 < rho < 0.51


def test_certified_loss_is_planned_to_a_sixteenth() -> None:
    off_topic, planned = [np.linspace(0.5, 0.8, 100, dtype=np.float32)], planned_loss(CERTIFYING)
    assert planned == DELTA / 16
    for queries, lost in ((319, 0), (638, 0), (639, 1), (959, 2)):  # (lost + 1) / (queries + 1) is at most the plan
        right = np.linspace(0.2, 0.9, queries, dtype=np.float32)
        assert (right < np.float32(choose_rho(right, off_topic, planned))).sum() == lost


@pytest.mark.parametrize("law", [norm(0.6, 0.1), skewnorm(-2, 0.8, 0.2), beta(4, 2)])
def test_tail_below_few_answers_loses_the_plan(law: rv_frozen) -> None:
    """Far fewer right answers than can limit the share: it is at most as planned, where the law is known."""
    rng, planned = np.random.default_rng(0), planned_loss(CERTIFYING)
    lost = []
    for _ in range(400):
        right = law.rvs(size=45, random_state=rng).astype(np.float32)
        rho = choose_rho(right, [float32(2.0)], planned)
        assert rho <= right.min()
        lost.append(law.cdf(rho))
    assert 0.1 * planned < np.mean(lost) <= planned


def test_share_needs_enough_queries_to_be_limited() -> None:
    assert can_limit(0.015, 66)
    assert not can_limit(0.015, 65)


def kind(scores: np.ndarray, chooses: bool = True) -> ScoredQuestions:
    return ScoredQuestions(scores, singles(len(scores)), np.full(len(scores), chooses))


def test_kept_rho_is_recorded_for_every_kind() -> None:
    right, scores = kind(float32(0.2, 0.5, 0.6, 0.7)), kind(float32(0.1, 0.2, 0.3, 0.9))
    record = RefusalEvidence(right, {"off_topic": scores}, 3, DEFAULT, kept=0.25).record(provisional=False)
    counted = record.evidence["off_topic"]
    assert (counted.queries, counted.refused, record.left_out) == (4, 2, 3)
    assert record.lost is not None
    assert record.lost.mean == 0.25
    assert record.lost.upper == pytest.approx(0.751, abs=1e-3)  # Clopper–Pearson, 1 of 4
    assert record.lost.lower < 0.25


def test_off_topic_question_is_counted_by_the_rho_of_the_others() -> None:
    off_topic = kind(np.linspace(0.1, 0.3, 34, dtype=np.float32))
    evidence = RefusalEvidence(None, {"off_topic": off_topic}, 0, DEFAULT)
    assert int((off_topic.scores < np.float32(evidence.rho)).sum()) == 31  # nine in ten
    counted = evidence.record(provisional=True).evidence["off_topic"]
    assert (counted.queries, counted.refused) == (34, 30)  # the 31st is answered without itself
    assert 0.7 < counted.lower < 30 / 34


def test_right_answer_is_counted_by_the_rho_of_other_folds() -> None:
    """Of 133 right answers one may be lost; without a fold that has the lowest, ρ is the second or third lowest."""
    right = kind(np.linspace(0.2, 0.9, 133, dtype=np.float32))
    evidence = RefusalEvidence(right, {"off_topic": kind(np.full(34, 0.95, dtype=np.float32))}, 0, DEFAULT)
    assert (right.scores < np.float32(evidence.rho)).sum() == 1
    lost = [
        right.scores[row]
        < np.float32(choose_rho(np.delete(right.scores, np.arange(row % 50, 133, 50)), [float32(1)], DEFAULT))
        for row in range(133)
    ]
    assert evidence.refused(right).tolist() == lost


def test_off_topic_questions_are_in_the_language_of_the_queries(releases: Path) -> None:
    record = json.loads((find(releases) / "manifest.json").read_bytes())["refusal"]
    stating = [each for each in off_topic_table() if each.language == "English" and not each.chooses]
    kinds = record["evidence"]
    counted = kinds["off_topic"]["queries"] + kinds["request"]["queries"]
    assert len(stating) - record["left_out"] <= counted <= len(stating)
    assert kinds["request"]["queries"] <= sum(question.is_request for question in stating)


def test_rho_refuses_most_requests_as_a_kind_of_their_own() -> None:
    """Nearly all off-topic questions are refused below every request; ρ rises until it refuses these, too."""
    off_topic, request = (
        kind(np.linspace(0.1, 0.2, 90, dtype=np.float32)),
        kind(np.linspace(0.3, 0.4, 10, dtype=np.float32)),
    )
    right = ScoredQuestions(np.linspace(0.5, 0.9, 400, dtype=np.float32), singles(400), np.ones(400, dtype=np.bool_))
    record = RefusalEvidence(right, {"off_topic": off_topic, "request": request}, 0, DEFAULT).record(provisional=False)
    assert record.rho is not None
    assert 0.38 < record.rho < 0.4
    assert record.evidence["request"].refused == 9


def _shipped(fields: int, spread: float, rng: np.random.Generator) -> ScoredQuestions:
    """Return ten questions of each field, of which every other one chooses; the means of fields are spread."""
    means = np.repeat(rng.normal(0, spread, fields), 10)
    scores = (means + rng.normal(0, 0.1, len(means))).astype(np.float32)
    names = np.repeat([f"field {number}" for number in range(fields)], 10)
    return ScoredQuestions(scores, singles(len(scores)), np.arange(len(scores)) % 2 == 0, names)


def test_half_that_does_not_choose_is_counted() -> None:
    questions = _shipped(20, 0.1, np.random.default_rng(0))
    evidence = RefusalEvidence(None, {"off_topic": questions}, 0, DEFAULT)
    counted = evidence.record(provisional=True).evidence["off_topic"]
    assert evidence.rho == choose_rho(questions.scores[:0], [questions.scores[::2]], DEFAULT)
    assert (counted.queries, counted.refused) == (100, int((questions.scores[1::2] < np.float32(evidence.rho)).sum()))


def test_stated_limit_holds_for_a_further_field() -> None:
    """In worlds where fields differ, the limit is above the true share of a further field at most once in twenty."""
    rng = np.random.default_rng(0)
    above = plain = 0
    for _ in range(400):
        questions = _shipped(20, 0.1, rng)
        scores, fields = questions.scores[1::2], questions.fields[1::2]  # type: ignore[index]
        truth = norm.cdf((0.15 - rng.normal(0, 0.1)) / 0.1)
        above += further_field_refused(scores, fields, 0.15) > truth
        plain += 1 - share_at_most(scores >= np.float32(0.15), singles(len(scores))) > truth
    assert above / 400 <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 400)  # one run in 200 by chance
    assert plain / 400 > 0.2


def test_limit_of_equal_fields_is_that_of_their_questions() -> None:
    questions = _shipped(30, 0.0, np.random.default_rng(1))
    assert questions.fields is not None
    assert further_field_refused(questions.scores, questions.fields, 0.1) == pytest.approx(norm.cdf(1), abs=0.05)
    assert further_field_refused(questions.scores[:10], questions.fields[::10][:10], 0.1) == 1  # nothing to tell


def test_certifying_queries_do_not_move_rho() -> None:
    scores, limits = np.linspace(0.2, 0.9, 400, dtype=np.float32), np.arange(400) % 3 == 0
    off_topic = kind(np.linspace(0.5, 0.8, 34, dtype=np.float32))
    whole, part = (
        RefusalEvidence(
            ScoredQuestions(scores[rows], singles(rows.sum()), limits[rows]), {"off_topic": off_topic}, 0, DEFAULT
        )
        for rows in (np.ones(400, dtype=np.bool_), limits)
    )
    assert whole.rho == part.rho
    certifying = whole.refused(whole.right)[~limits]  # type: ignore[arg-type]
    assert (certifying == (scores[~limits] < np.float32(whole.rho))).all()


def _certified_loss(rng: np.random.Generator, queries: int) -> float:
    """Certify τ on queries with a known law, with ρ from others; returns the true loss of refusal and cut together.

    The best similarity is uniform. Every query has its relevant result at rank 2, with a uniform score that depends on
    the best similarity, so that refusals and cuts overlap as they do in data.
    """
    rho = float(np.quantile(rng.uniform(size=200), DELTA / 8))

    def scores(count: int) -> np.ndarray:
        best = rng.uniform(size=count)
        return np.column_stack([1 + best, np.where(rng.uniform(size=count) < 0.5, best, rng.uniform(size=count))])

    found = scores(queries).astype(np.float32)
    top = TopK(found, np.zeros(found.shape, dtype=np.int64))
    judged = JudgedQueries(top, np.tile([0, 1], (queries, 1)), np.ones(queries), found[:, 1])
    answering = AnsweredQueries(found[:, 0], found[:0, 0], np.float32(1 + rho), certified=True)
    none = TopK(found[:0], top.positions[:0])
    decisions = ScoredQueries(judged, none, None, None, answering).certifying("similarity")
    limit = LossLimit("accuracy", LossSteps.of_accuracy(judged, decisions), DELTA)
    tau = certify([limit], CERTIFYING).tau
    if tau is None:
        return 0.0
    # P(best < ρ or second < τ) with second = best in half of the queries and independent in the other half.
    return 0.5 * max(rho, tau) + 0.5 * (rho + tau - rho * tau)


def test_certified_loss_includes_refusals_in_a_known_world() -> None:
    rng = np.random.default_rng(0)
    losses = np.array([_certified_loss(rng, 400) for _ in range(1000)])
    assert (losses > DELTA).mean() <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 1000)  # promised; one run in 200 by chance
    assert losses.mean() > 0.5 * DELTA


def _path(rng: np.random.Generator, queries: int, rho: float) -> CalibrationQueries:
    """Draw queries whose only relevant result is their best one, with a uniform score, and refuse below `rho`."""
    found = rng.uniform(size=(queries, 1)).astype(np.float32)
    top = TopK(found, np.zeros(found.shape, dtype=np.int64))
    judged = JudgedQueries(top, np.ones((queries, 1), dtype=np.int64), np.ones(queries), found[:, 0])
    answering = AnsweredQueries(found[:, 0], found[:0, 0], np.float32(rho), certified=True)
    scored = ScoredQueries(judged, TopK(found[:0], top.positions[:0]), None, None, answering)
    rows = np.arange(queries)
    return CalibrationQueries(scored, rows, rows[None], None, None, singles(queries), 0)


@pytest.mark.parametrize("planned", [DELTA, 2 * DELTA])
def test_path_to_rho_is_certified_as_far_as_it_holds(planned: float) -> None:
    """ρ itself would lose the limit or more, so a certificate that reaches that is false; a lower ρ always has one."""
    rng, false, lowered = np.random.default_rng(0), 0, 0
    for _ in range(1000):
        evidence = _path(rng, 105, planned)
        rho = certifiable_rho(CERTIFYING, evidence)
        assert rho is not None
        false += min(rho, planned) >= DELTA
        lowered += rho < planned
    assert false / 1000 <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 1000)  # one run in 200 by chance
    assert lowered / 1000 > 0.9


def test_certificate_with_lowered_rho_has_no_cut() -> None:
    evidence = _path(np.random.default_rng(1), 105, 0.3)
    rho = certifiable_rho(CERTIFYING, evidence)
    answering = evidence.scored.answering
    assert rho is not None
    assert answering is not None
    lower = replace(answering, threshold=np.float32(rho), planned=answering.threshold)
    policy = decide_policy(CERTIFYING, replace(evidence, scored=replace(evidence.scored, answering=lower)))
    assert (policy.tau, policy.certificates[0].bound <= DELTA) == (NO_CUT, True)
    kept = evidence.scored.kept("similarity", policy.threshold)
    assert kept.tolist() == (answering.answerable >= answering.threshold)[:, None].tolist()


def test_refused_query_is_lost_from_the_first_step() -> None:
    found = float32(0.9, 0.8, 0.7, 0.6, 0.2, 0.1).reshape(3, 2)
    top = TopK(found, np.zeros(found.shape, dtype=np.int64))
    judged = JudgedQueries(top, np.tile([0, 1], (3, 1)), np.ones(3), found[:, 1])
    answering = AnsweredQueries(found[:, 0], found[:0, 0], np.float32(0.5), certified=True)
    scored = ScoredQueries(judged, TopK(found[:0], top.positions[:0]), None, None, answering)
    decisions = scored.certifying("similarity")
    for tau in decisions[np.isfinite(decisions)]:
        assert ((decisions >= tau) == scored.kept("similarity", tau)).all()
    certified = certify(
        [LossLimit("accuracy", LossSteps.of_accuracy(judged, decisions), 0.1)],
        ThresholdRule("risk-control", "similarity", max_loss=0.1),
    )
    assert certified.tau is None
    assert certified.certificates[0].loss == pytest.approx(1 / 3)
