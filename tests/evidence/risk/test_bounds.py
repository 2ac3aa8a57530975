"""Bounds against their definitions, written out, and against simulations whose true loss is known in closed form."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import JudgedQueries, discounts, ideal_dcg
from taugate.evidence.risk import certify as bounds
from taugate.evidence.risk.certify import LossLimit, certify
from taugate.evidence.risk.certify import p_values as of_steps
from taugate.evidence.risk.steps import LossSteps, loss_steps
from taugate.evidence.rules import ThresholdRule
from taugate.retrieval.index.top_k import TopK

DELTAS = [0.01, 0.02, 0.05, 0.3]


@pytest.mark.parametrize("n", [1, 2, 59, 300, 5000])
@pytest.mark.parametrize("delta", DELTAS)
def test_exact_p_value_equals_binomial(n: int, delta: float) -> None:
    k = np.unique(np.linspace(0, n, 60).astype(int))
    np.testing.assert_allclose(
        bounds.exact_p_values(k.astype(np.float64), n, delta), stats.binom.cdf(k, n, delta), rtol=1e-9, atol=1e-300
    )


def test_exact_p_value_rises_between_integers() -> None:
    p = bounds.exact_p_values(np.linspace(0, 12, 500), 137.4, 0.05)
    assert (np.diff(p) > 0).all()
    assert bounds.exact_p_values(np.array([137.4, 200.0]), 137.4, 0.05).tolist() == [1.0, 1.0]


def test_queries_for_confidence_known_values() -> None:
    assert bounds.queries_for_confidence(0.01, 0.95) == 299
    assert bounds.queries_for_confidence(0.02, 0.95) == 149
    assert bounds.queries_for_confidence(0.05, 0.95) == 59
    assert bounds.queries_for_confidence(0.5, 0.5) == 1
    assert bounds.queries_for_expected(0.01) == 99
    assert bounds.queries_for_expected(0.05) == 19
    assert bounds.queries_for_expected(0.5) == 1


@pytest.mark.parametrize("delta", [0.001, 0.007, 0.01, 0.02, 0.03, 0.05, 0.1, 1 / 3, 0.9])
def test_minimum_queries_are_exact(delta: float) -> None:
    nothing = np.zeros(1)
    for confidence in (0.5, 0.9, 0.95, 0.999):
        n, alpha = bounds.queries_for_confidence(delta, confidence), 1 - confidence
        assert bounds.exact_p_values(nothing, n, delta)[0] <= alpha + 1e-12
        assert n == 1 or bounds.exact_p_values(nothing, n - 1, delta)[0] > alpha
    n = bounds.queries_for_expected(delta)
    assert bounds.expected(nothing, n, delta)[0]
    assert n == 1 or not bounds.expected(nothing, n - 1, delta)[0]


def test_queries_for_tiny_loss_are_finite() -> None:
    """ln(1 − 10⁻¹⁷) is no 0: −ln 0.05 / 10⁻¹⁷."""
    assert bounds.queries_for_confidence(1e-17, 0.95) == pytest.approx(-math.log(0.05) * 1e17, rel=1e-9)
    assert bounds.queries_for_confidence(1e-9, 0.95) == pytest.approx(-math.log(0.05) * 1e9, rel=1e-8)
    assert bounds.queries_for_expected(1e-17) == pytest.approx(1e17)


@pytest.mark.parametrize("decimal", ["0.001", "0.01", "0.02", "0.05", "0.07", "0.29"])
def test_expected_loss_equals_exact_arithmetic(decimal: str) -> None:
    """n/(n+1)·R̂ + 1/(n+1) ≤ δ with δ as it was typed, not as binary rounds it."""
    delta = Fraction(decimal)
    for n in range(1, 1200, 7):
        losses = range(min(n, math.ceil(2 * delta * n) + 2) + 1)
        passes = [Fraction(n, n + 1) * Fraction(loss, n) + Fraction(1, n + 1) <= delta for loss in losses]
        assert bounds.expected(np.array(losses, dtype=np.float64), n, float(decimal)).tolist() == passes, n


def test_expected_loss_by_document_equals_conformal() -> None:
    """C/(C + 1)·R̂ + B/(C + 1) ≤ 0 with the loss Σ (loss − δ) of a document, and B the largest that can be."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.integers(1, 6, size=rng.integers(1, 60))
        lost, delta = rng.binomial(sizes, 0.05), float(rng.choice([0.05, 0.1, 0.3]))
        of_document = lost - delta * sizes
        count, maximum = len(sizes), sizes.max() * (1 - delta)
        passes = count / (count + 1) * of_document.mean() + maximum / (count + 1) <= 1e-9
        given = bounds.expected(np.array([float(lost.sum())]), int(sizes.sum()), delta, int(sizes.max()))
        assert given.tolist() == [passes]


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("n", [5, 59, 800])
def test_upper_limit_inverts_p_value(n: int, confidence: float) -> None:
    for loss in (0.0, 1.0, 3.0, n / 2, n - 1.0):
        exact = bounds.upper_limit(loss, n, confidence)
        assert bounds.exact_p_values(np.array([loss]), n, exact)[0] == pytest.approx(1 - confidence, abs=1e-9)
    assert bounds.upper_limit(float(n), n, confidence) == 1.0


def test_upper_limit_inverts_fractional_sizes() -> None:
    limit = bounds.upper_limit(2.5, 81.7, 0.95)
    assert bounds.exact_p_values(np.array([2.5]), 81.7, limit)[0] == pytest.approx(0.05, abs=1e-9)


# Simulations. The decision score of the only relevant result of a query is uniform in 0…1, so a cut at τ loses it with
# probability τ: the true loss is τ itself, times what the result was worth.


def uniform_steps(rng: np.random.Generator, n: int, hits: float = 1.0) -> LossSteps:
    """n queries of which a share `hits` has its relevant document in the list: the true loss at τ is hits · τ."""
    relevant = (rng.uniform(size=n) < hits)[:, None]
    scores = rng.uniform(size=(n, 1)).astype(np.float32)
    return LossSteps.of_accuracy(queries(scores, relevant.astype(np.int64)), scores)


def queries(scores: np.ndarray, grades: np.ndarray, ideal: np.ndarray | None = None) -> JudgedQueries:
    top = TopK(scores, np.zeros(scores.shape, dtype=np.int64))
    return JudgedQueries(top, grades, np.ones(len(scores)) if ideal is None else ideal, scores[:, 0])


def shares(taus: list[float | None], worth: float, delta: float) -> tuple[float, float, float]:
    """Share of repetitions whose true loss is above δ with its standard error at 5 %, and the mean true loss."""
    losses = np.array([0.0 if tau is None else tau * worth for tau in taus])
    return float((losses > delta).mean()), math.sqrt(0.05 * 0.95 / len(losses)), float(losses.mean())


@pytest.mark.parametrize(("n", "delta", "hits"), [(60, 0.05, 1.0), (211, 0.05, 0.6), (400, 0.02, 0.9)])
@pytest.mark.slow
def test_high_probability_guarantee_holds(n: int, delta: float, hits: float) -> None:
    rng = np.random.default_rng(n)
    rule = ThresholdRule("risk-control", "similarity", max_loss=delta)
    taus = [certify([LossLimit("accuracy", uniform_steps(rng, n, hits), delta)], rule).tau for _ in range(2000)]
    broken, error, _ = shares(taus, hits, delta)
    assert broken <= 0.05 + 3 * error
    exact = max(stats.binom.cdf(k, n, delta) for k in range(n) if stats.binom.cdf(k, n, delta) <= 0.05)
    assert broken >= exact - 4 * error, "more is thrown away than the exact test has to"


@pytest.mark.parametrize(("n", "delta"), [(25, 0.05), (211, 0.05), (400, 0.02)])
def test_expected_loss_is_tight(n: int, delta: float) -> None:
    rng = np.random.default_rng(n + 1)
    rule = ThresholdRule("risk-control", "similarity", guarantee="expected-loss", max_loss=delta)
    taus = [certify([LossLimit("accuracy", uniform_steps(rng, n), delta)], rule).tau for _ in range(2000)]
    _, _, mean = shares(taus, 1.0, delta)
    error = np.std([0.0 if tau is None else tau for tau in taus]) / math.sqrt(len(taus))
    assert mean <= delta + 3 * error
    assert mean >= delta - 1 / (n + 1) - 3 * error  # what conformal risk control gives away (its Theorem 2)


def graded_steps(rng: np.random.Generator, n: int) -> LossSteps:
    """Four results of random grades 0…3, with independent uniform decision scores; one more of grade 2 is missed."""
    grades = rng.integers(0, 4, size=(n, 4))
    ideal = np.array([ideal_dcg([*(grade for grade in row if grade), 2], 4) for row in grades.tolist()])
    decisions = rng.uniform(size=(n, 4)).astype(np.float32)
    return LossSteps.of_ndcg(queries(decisions, grades, ideal), decisions)


def worth_of_graded() -> float:
    """Expected NDCG of such a query, over all 4⁴ gradings: at τ, the share τ of it is lost."""
    total = 0.0
    for number in range(4**4):
        row = [number // 4**place % 4 for place in range(4)]
        gained = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(row))
        best = sorted([*row, 2], reverse=True)[:4]
        total += gained / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(best))
    return total / 4**4


@pytest.mark.parametrize(("guarantee", "n", "delta"), [("high-probability", 150, 0.05), ("expected-loss", 80, 0.05)])
@pytest.mark.slow
def test_ndcg_loss_guarantee_holds(guarantee: str, n: int, delta: float) -> None:
    rng = np.random.default_rng(7)
    assert discounts(4)[3] == pytest.approx(1 / math.log2(5))
    rule = ThresholdRule("risk-control", "similarity", metric="ndcg", guarantee=guarantee, max_loss=delta)
    taus = [certify([LossLimit("ndcg", graded_steps(rng, n), delta)], rule).tau for _ in range(500)]
    broken, error, mean = shares(taus, worth_of_graded(), delta)
    if guarantee == "high-probability":
        assert broken <= 0.05 + 3 * error
    spread = np.std([0.0 if tau is None else tau for tau in taus]) / math.sqrt(len(taus))
    assert mean <= delta + 3 * spread
    assert mean >= 0.25 * delta, "a bound that certifies nothing is always true"


def copied_steps(rng: np.random.Generator, documents: int, copies: int) -> tuple[LossSteps, LossSteps]:
    """Every query asked `copies` times over: query by query, and by document."""
    scores = np.repeat(rng.uniform(size=(documents, 1)).astype(np.float32), copies, axis=0)
    requested, units = (
        queries(scores, np.ones(scores.shape, dtype=np.int64)),
        SamplingUnits.from_clusters(np.repeat(np.arange(documents), copies)),
    )
    return LossSteps.of_accuracy(requested, scores), LossSteps.of_accuracy(requested, scores, units)


def test_query_copies_need_document_units() -> None:
    rng = np.random.default_rng(3)
    bold, honest = np.array(
        [
            [steps.candidates[(of_steps(steps, 0.05) <= 0.05)[:-1].sum() - 1] for steps in copied_steps(rng, 100, 6)]
            for _ in range(1000)
        ]
    ).T.tolist()
    broken, error, mean = shares(honest, 1.0, 0.05)
    assert broken <= 0.05 + 2 * error
    assert mean > 0.005, "a bound that certifies nothing is always true"
    assert shares(bold, 1.0, 0.05)[0] > 0.2


@pytest.mark.parametrize("metric", ["accuracy", "ndcg"])
def test_query_copies_certify_like_singles(metric: str) -> None:
    rng = np.random.default_rng(4)
    scores = rng.uniform(size=(150, 1)).astype(np.float32)
    hit = (rng.uniform(size=(150, 1)) < 0.7).astype(np.int64)
    rule = ThresholdRule("non-inferiority", "similarity", metric, max_loss=0.05)  # type: ignore[arg-type]
    alone = certify([LossLimit(metric, loss_steps(queries(scores, hit), scores, rule.metric), 0.05)], rule)
    result = []
    for copies in (2, 7):
        many, units = np.repeat(scores, copies, axis=0), SamplingUnits.from_clusters(np.repeat(np.arange(150), copies))
        steps = loss_steps(queries(many, np.repeat(hit, copies, axis=0)), many, rule.metric, units)
        result.append(certify([LossLimit(metric, steps, 0.05)], rule))
    assert result[0].tau == result[1].tau
    assert result[0].certificates[0].bound == pytest.approx(result[1].certificates[0].bound, abs=1e-8)
    if metric == "accuracy":  # where the bound for one query each is exact
        assert result[0].tau is not None
        assert result[0].tau <= alone.tau
        assert result[0].certificates[0].bound >= alone.certificates[0].loss
