"""The largest τ that passes, and nothing larger passes; the certificate and the sentence say so in numbers."""

import math

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.risk import words
from taugate.evidence.risk.certify import LossLimit, certify, statement_of
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import ThresholdRule
from taugate.release.evidence import Certificate
from taugate.retrieval.index.top_k import TopK

HIGH = ThresholdRule("risk-control", "similarity", max_loss=0.05)
EXPECTED = ThresholdRule("risk-control", "similarity", guarantee="expected-loss", max_loss=0.05)
PAIRED = ThresholdRule("non-inferiority", "similarity", max_loss=0.05)


def random_queries(seed: int, n: int, hits: float = 0.8) -> tuple[JudgedQueries, np.ndarray]:
    """Three results, at most one of them relevant; scores in hundredths, so that some are equal."""
    rng = np.random.default_rng(seed)
    grades = np.zeros((n, 3), dtype=np.int64)
    result = np.flatnonzero(rng.uniform(size=n) < hits)
    grades[result, rng.integers(0, 3, size=len(result))] = 1
    scores = np.round(-np.sort(-rng.uniform(size=(n, 3)), axis=1), 2).astype(np.float32)
    top = TopK(scores, np.zeros((n, 3), dtype=np.int64))
    return JudgedQueries(top, grades, np.ones(n), scores[:, 0]), scores


def accuracy_limit(queries: JudgedQueries, scores: np.ndarray, most: float) -> LossLimit:
    return LossLimit(words.ACCURACY, LossSteps.of_accuracy(queries, scores), most)


def empty_limit(scores: np.ndarray, most: float) -> LossLimit:
    return LossLimit(words.EMPTY, LossSteps.of_empty(scores), most)


def best_relevant(queries: JudgedQueries, scores: np.ndarray) -> list[float]:
    """The highest score of a relevant result, of each query that has one."""
    return [
        max(score for grade, score in zip(grades, row, strict=True) if grade >= 1)
        for grades, row in zip(queries.grades.tolist(), scores.tolist(), strict=True)
        if any(grade >= 1 for grade in grades)
    ]


def lost(queries: JudgedQueries, scores: np.ndarray, tau: float) -> int:
    """Queries that have a relevant result and none at τ or above, counted one by one."""
    return sum(not best >= tau for best in best_relevant(queries, scores))


def empty(scores: np.ndarray, tau: float) -> int:
    return sum(not any(score >= tau for score in row) for row in scores.tolist())


def passes(rule: ThresholdRule, count: int, n: int, most: float) -> bool:
    """The rule's condition, written out."""
    if rule.method == "risk-control" and rule.guarantee == "expected-loss":
        return n / (n + 1) * (count / n) + 1 / (n + 1) <= most + 1e-12
    return float(stats.binom.cdf(count, n, most)) <= 1 - rule.confidence


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", [HIGH, EXPECTED, PAIRED], ids=["exact", "expected", "paired"])
@pytest.mark.parametrize(("n", "most"), [(70, 0.05), (400, 0.05), (400, 0.2), (600, 0.02)])
def test_tau_is_largest_passing_score(rule: ThresholdRule, n: int, most: float, seed: int) -> None:
    queries, scores = random_queries(seed, n)
    result = certify([accuracy_limit(queries, scores, most)], rule)
    best, (certificate,) = best_relevant(queries, scores), result.certificates
    ok = {score: passes(rule, sum(not item >= score for item in best), n, most) for score in np.unique(scores).tolist()}
    relevant = sorted(set(scores[queries.grades >= 1].tolist()))
    assert result.tau in relevant
    assert certificate.loss == lost(queries, scores, result.tau) / n
    assert lost(queries, scores, result.tau) == lost(queries, scores, max(score for score in ok if ok[score]))
    higher = [score for score in relevant if score > result.tau]
    assert higher
    assert not any(ok[score] for score in higher)
    assert all(ok[score] for score in relevant if score <= result.tau)


def test_unobserved_thresholds_gain_nothing() -> None:
    """Conformal risk control takes λ̂ = sup{λ : n/(n+1)·R̂(λ) + 1/(n+1) ≤ δ} over all λ, not over observed ones."""
    for seed in range(20):
        queries, scores = random_queries(seed, 90)
        smallest, grid = best_relevant(queries, scores), np.linspace(0, 1, 2001).astype(np.float32).tolist()
        best = max(tau for tau in grid if passes(EXPECTED, sum(not item >= tau for item in smallest), 90, 0.05))
        result = certify([accuracy_limit(queries, scores, 0.05)], EXPECTED).tau
        assert result is not None
        assert result == pytest.approx(best, abs=1 / 2000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", [HIGH, EXPECTED], ids=["exact", "expected"])
@pytest.mark.parametrize(("most", "most_empty"), [(0.05, 0.05), (0.2, 0.01), (0.5, 0.02)])
def test_two_limits_take_smaller_tau(rule: ThresholdRule, most: float, most_empty: float, seed: int) -> None:
    queries, scores = random_queries(seed, 500)
    limits = [accuracy_limit(queries, scores, most), empty_limit(scores, most_empty)]
    result = certify(limits, rule)
    loss, replies = (certify([limit], rule).tau for limit in limits)
    assert result.tau == min(loss, replies)
    assert (loss < replies) == (most == 0.05), "each of them has to be the smaller one once"
    assert [item.limit for item in result.certificates] == ["accuracy", "empty"]
    assert result.certificates[0].loss == lost(queries, scores, result.tau) / 500
    assert result.certificates[1].loss == empty(scores, result.tau) / 500


def test_single_hit_leaves_empty_limit_binding() -> None:
    """One hit in 500 queries may be lost; then the empty replies alone say how far the cut goes."""
    queries, scores = random_queries(0, 500, hits=0.0)
    queries.grades[0, 0] = 1
    result = certify([accuracy_limit(queries, scores, 0.05), empty_limit(scores, 0.05)], HIGH)
    assert result.tau == certify([empty_limit(scores, 0.05)], HIGH).tau
    assert result.certificates[0].loss in {0.0, 1 / 500}


@pytest.mark.parametrize("n", [70, 400])
def test_certificate_records_numbers(n: int) -> None:
    queries, scores = random_queries(1, n)
    result = certify([accuracy_limit(queries, scores, 0.05)], HIGH)
    (certificate,) = result.certificates
    count = lost(queries, scores, result.tau)
    assert (certificate.limit, certificate.most, certificate.queries) == ("accuracy", 0.05, n)
    assert (certificate.effective_queries, certificate.loss, certificate.queries_needed) == (n, count / n, 59)
    assert certificate.bound == pytest.approx(stats.beta.ppf(0.95, count + 1, n - count))
    assert certificate.loss < certificate.bound <= 0.05
    expected = certify([accuracy_limit(queries, scores, 0.05)], EXPECTED)
    count = lost(queries, scores, expected.tau)
    assert expected.certificates[0].bound == pytest.approx((count + 1) / (n + 1))
    assert expected.certificates[0].bound <= 0.05
    assert expected.certificates[0].queries_needed == 19


@pytest.mark.parametrize(("rule", "enough"), [(HIGH, 59), (EXPECTED, 19), (PAIRED, 59)], ids=["high", "exp", "paired"])
def test_one_query_short_gives_no_tau(rule: ThresholdRule, enough: int) -> None:
    queries, scores = random_queries(2, enough)
    assert certify([accuracy_limit(queries, scores, 0.05)], rule).tau is not None
    fewer = queries.take(np.arange(enough - 1))
    result = certify([accuracy_limit(fewer, scores[:-1], 0.05)], rule)
    (certificate,) = result.certificates
    assert result.tau is None
    assert (certificate.queries, certificate.queries_needed, certificate.loss) == (enough - 1, enough, 0.0)
    assert certificate.bound > certificate.most


PATTERN = (3, 1, 1, 2)  # queries of a document, over and over


def pattern(times: int) -> SamplingUnits:
    return SamplingUnits.from_clusters(np.repeat(np.arange(len(PATTERN) * times), PATTERN * times))


@pytest.mark.parametrize("guarantee", ["high-probability", "expected-loss"])
@pytest.mark.parametrize("most", [0.01, 0.05])
def test_queries_needed_is_minimal_by_document(most: float, guarantee: str) -> None:
    rule = ThresholdRule("risk-control", "similarity", guarantee=guarantee, max_loss=most)  # type: ignore[arg-type]

    def limit(times: int) -> LossLimit:
        units = pattern(times)
        return LossLimit(words.EMPTY, LossSteps.of_empty(np.full((len(units), 1), 0.5, dtype=np.float32), units), most)

    needed, size = statement_of(rule).queries_needed(limit(5), rule), sum(PATTERN)
    assert (
        needed
        == statement_of(rule).queries_needed(limit(40), rule)
        > statement_of(rule).queries_needed(empty_limit(np.zeros((9, 1)), most), rule)
    )
    enough = math.ceil(needed / size)
    assert certify([limit(enough)], rule).tau is not None
    assert certify([limit(enough - 1)], rule).tau is None


def test_repeated_documents_lower_tau() -> None:
    queries, scores = random_queries(0, 399)
    units = SamplingUnits.from_clusters(np.arange(399) // 3)
    alone = accuracy_limit(queries, scores, 0.05)
    repeated = LossLimit(words.ACCURACY, LossSteps.of_accuracy(queries, scores, units), 0.05)
    for rule in (PAIRED, HIGH, EXPECTED):
        assert certify([repeated], rule).tau < certify([alone], rule).tau
    (certificate,) = certify([repeated], PAIRED).certificates
    assert (certificate.unit, certificate.units, certificate.queries) == ("document", 133, 399)
    assert certificate.effective_queries == pytest.approx(133)
    assert (certificate.bound, certificate.loss) == (certificate.upper, pytest.approx(certificate.loss))
    assert certificate.loss < certificate.bound <= 0.05


def test_single_query_documents_certify_by_query() -> None:
    queries, scores = random_queries(0, 400)
    units = SamplingUnits.from_clusters(np.arange(400)[::-1])
    result = certify([LossLimit(words.ACCURACY, LossSteps.of_accuracy(queries, scores, units), 0.05)], HIGH)
    assert result == certify([accuracy_limit(queries, scores, 0.05)], HIGH)


def test_ndcg_loss_uses_e_value_by_query() -> None:
    """Literally: the largest candidate at which 1 / Σ share · Π (1 + λ·(δ − loss)) passes."""
    queries, scores = random_queries(5, 300)
    delta, steps = 0.05, LossSteps.of_ndcg(queries, scores)
    result = certify(
        [LossLimit(words.NDCG, steps, delta)], ThresholdRule("risk-control", "similarity", "ndcg", max_loss=delta)
    )
    uncut = queries.ndcg()

    def passes(tau: float) -> bool:
        losses = queries.lost("ndcg", scores >= np.float32(tau))
        bets = [(1 - 1e-6, 0.5), (0.95, 0.3), (0.7, 0.2)]
        wealth = sum(share * np.prod(1 + rate / (uncut.max() - delta) * (delta - losses)) for rate, share in bets)
        return bool(wealth >= 1 / 0.05)

    first_failure = next(place for place, tau in enumerate(steps.candidates.tolist()) if not passes(tau))
    assert result.tau == steps.candidates[first_failure - 1]
    (certificate,) = result.certificates
    assert (certificate.unit, certificate.units, certificate.queries) == ("query", 300, 300)
    assert certificate.loss < certificate.bound <= delta + 1e-9


def certificates(n: int, most: float, rule: ThresholdRule, each: int = 1) -> list[Certificate]:
    """Of n queries, so many on each document."""
    queries, scores = random_queries(3, n)
    steps = LossSteps.of_accuracy(queries, scores, SamplingUnits.from_clusters(np.arange(n) // each))
    return certify([LossLimit(words.ACCURACY, steps, most)], rule).certificates


def test_shortage_names_query_counts() -> None:
    high = ThresholdRule("risk-control", "similarity", max_loss=0.01)
    message = words.shortage(high, certificates(200, 0.01, high))
    assert "with 200 queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in message
    expected = ThresholdRule("risk-control", "similarity", guarantee="expected-loss", max_loss=0.01)
    message = words.shortage(expected, certificates(50, 0.01, expected))
    assert "with 50 queries an expected loss of 1 % cannot be certified; 99 are needed" in message
    message = words.shortage(high, certificates(200, 0.01, high, each=10))
    assert "with 200 queries about 20 documents a loss of 1 % cannot be certified at 95 %; " in message
    assert message.endswith(" like these are needed")
    both = ThresholdRule("risk-control", "similarity", max_loss=0.05, max_empty=0.001)
    queries, scores = random_queries(0, 80)
    result = certify([accuracy_limit(queries, scores, 0.05), empty_limit(scores, 0.001)], both)
    assert result.tau is None
    message = words.shortage(both, result.certificates)
    assert "with 80 queries a share of empty replies of 0.1 % cannot be certified at 95 %; 2,995 are needed" in message


def test_guarantee_names_its_terms() -> None:
    high = ThresholdRule("risk-control", "similarity", max_loss=0.05, confidence=0.9)
    message = words.guarantee(high, certificates(1234, 0.05, high), 7)
    for part in ("90 % confidence", "5 %", "1,234 queries", "top 7", "Learn-then-Test", "exact binomial"):
        assert part in message
    expected = ThresholdRule("risk-control", "similarity", guarantee="expected-loss", max_loss=0.02)
    message = words.guarantee(expected, certificates(300, 0.02, expected), 5)
    for part in ("On average", "2 %", "300 queries", "conformal risk control", "expected loss"):
        assert part in message
    average, _, one_cut = message.partition(" Of this one cut, with 95 % confidence, the loss is at most ")
    assert "confidence" not in average, "the expected loss has none"
    assert one_cut
    message = words.guarantee(PAIRED, certificates(600, 0.05, PAIRED, each=4), 5)
    for part in ("95 % confidence", "5 %", "600 queries about 150 documents", "non-inferiority"):
        assert part in message
    assert "e-value by document" in message
    ndcg = ThresholdRule("risk-control", "similarity", "ndcg", max_loss=0.05)
    queries, scores = random_queries(0, 300)
    steps = LossSteps.of_ndcg(queries, scores)
    result = certify([LossLimit(words.NDCG, steps, 0.05), empty_limit(scores, 0.1)], ndcg)
    message = words.guarantee(ndcg, result.certificates, 3)
    for part in ("NDCG@3 is at most 0.05 lower", "at most 10 % of answerable queries are answered with nothing"):
        assert part in message
    assert "fixed sequence, e-value)" in message
