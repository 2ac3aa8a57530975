"""Both errors of refusing queries: against a search through every threshold, and in worlds whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from taugate.errors import InputError
from taugate.evidence.abstention import certify
from taugate.evidence.abstention.certify import CertifyingScores, certify_both
from taugate.evidence.abstention.words import limits_remedy
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.rules import MAX_EMPTY, AbstentionRule, ThresholdRule
from taugate.release.manifest import DataRecord
from taugate.release.promises import percent_at_most
from taugate.release.refusal_records import RefusalRecord, RequestedLimits


def alone(scores: np.ndarray) -> CertifyingScores:
    """Each query about a document of its own."""
    return CertifyingScores(scores.astype(np.float32), SamplingUnits.from_clusters(np.arange(len(scores))))


def normal(rng: np.random.Generator, mean: float, count: int, digits: int = 6) -> np.ndarray:
    return np.round(rng.normal(mean, 1, count), digits)


def certified(
    rule: AbstentionRule, answerable: CertifyingScores, unanswerable: CertifyingScores
) -> tuple[RefusalRecord, RequestedLimits]:
    record = certify_both(rule, answerable, unanswerable, "a_score", [])
    assert record.limits is not None
    return record, record.limits


def every_threshold(answerable: np.ndarray, unanswerable: np.ndarray) -> np.ndarray:
    """Each that divides the queries in another way: the observed scores, and just above the highest."""
    scores = np.unique(np.concatenate([answerable, unanswerable]).astype(np.float32))
    return np.append(scores, np.nextafter(scores[-1], np.float32(np.inf)))


def passing(rule: AbstentionRule, answerable: np.ndarray, unanswerable: np.ndarray) -> list[tuple[int, int]]:
    """(refused, answered) of every threshold at which both binomial tests pass, each at half of the error."""
    alpha = (1 - rule.confidence) / 2
    result = []
    for tau in every_threshold(answerable, unanswerable):
        refused = sum(score < tau for score in answerable.astype(np.float32))
        answered = sum(score >= tau for score in unanswerable.astype(np.float32))
        safe = stats.binom.cdf(answered, len(unanswerable), rule.max_answered) <= alpha
        if rule.max_empty is not None:
            safe &= stats.binom.cdf(refused, len(answerable), rule.max_empty) <= alpha
        if safe:
            result.append((int(refused), int(answered)))
    return result


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("limits", [(0.5, 0.2), (0.3, 0.3), (0.6, 0.02), (0.4, None), (0.05, None)])
@pytest.mark.parametrize("seed", range(3))
def test_smallest_passing_threshold_is_chosen(seed: int, limits: tuple[float, float | None], digits: int) -> None:
    """With one digit many scores are equal, among them those of the two kinds."""
    rng = np.random.default_rng(seed)
    answerable, unanswerable = normal(rng, 1.5, 150, digits), normal(rng, 0, 90, digits)
    rule = AbstentionRule(*limits)
    expected = passing(rule, answerable, unanswerable)
    record, found = certified(rule, alone(answerable), alone(unanswerable))
    assert record.certified == bool(expected)
    if expected:
        result = (found.refused.found * 150, found.answered.found * 90)
        assert result == pytest.approx(min(expected, key=lambda item: item[0]))
        assert found.answered.upper == limits[0]
        upper = stats.beta.ppf(0.975, round(result[0]) + 1, 150 - round(result[0]))
        assert found.refused.upper == pytest.approx(upper)


def test_impossible_limits_keep_refusal_limit() -> None:
    """Two kinds that nothing tells apart: β is the Clopper–Pearson limit where γ is just certified."""
    rng = np.random.default_rng(0)
    answerable, unanswerable = normal(rng, 0, 400), normal(rng, 0, 300)
    record, found = certified(AbstentionRule(0.5, 0.10), alone(answerable), alone(unanswerable))
    assert not record.certified
    refused = round(found.refused.found * 400)
    assert stats.binom.cdf(refused, 400, 0.10) <= 0.025 < stats.binom.cdf(refused + 1, 400, 0.10)
    assert found.refused.upper == 0.10
    answered = round(found.answered.found * 300)
    assert found.answered.upper == pytest.approx(stats.beta.ppf(0.975, answered + 1, 300 - answered))
    assert [item.empty for item in found.tradeoff] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]  # 367 certify 1 %
    assert next(item.answered for item in found.tradeoff if item.empty == 0.1) == found.answered.upper
    answers = [item.answered for item in found.tradeoff]
    assert answers == sorted(answers, reverse=True)


def data_of(answerable: int, unanswerable: int) -> DataRecord:
    return DataRecord(
        name="data",
        split="test",
        documents=1000,
        queries=answerable + unanswerable,
        answerable=answerable,
        unanswerable=unanswerable,
        truncated_documents=0,
        sha256={},
    )


def test_named_remedy_certifies() -> None:
    rng = np.random.default_rng(0)
    answerable, unanswerable = alone(normal(rng, 0, 400)), alone(normal(rng, 0, 300))
    _, found = certified(AbstentionRule(0.5, 0.10), answerable, unanswerable)
    message = limits_remedy(found, data_of(400, 300))
    assert percent_at_most(found.answered.upper) in message and len(message) <= 300
    larger, other = (
        float(part.split()[0].rstrip(",")) for part in message.split("--max-")[1:] for part in [part.split(" ", 1)[1]]
    )
    assert certified(AbstentionRule(larger, 0.10), answerable, unanswerable)[0].certified
    assert not certified(AbstentionRule(larger - 0.01, 0.10), answerable, unanswerable)[0].certified
    assert certified(AbstentionRule(0.5, other), answerable, unanswerable)[0].certified
    assert not certified(AbstentionRule(0.5, other - 0.01), answerable, unanswerable)[0].certified


def test_remedy_counts_missing_labels() -> None:
    """(1 − .05)ⁿ ≤ .025 takes 72 queries, (1 − .10)ⁿ 36."""
    answerable, unanswerable = alone(np.linspace(2, 3, 35)), alone(np.linspace(0, 1, 40))
    record, found = certified(AbstentionRule(0.05, 0.10), answerable, unanswerable)
    assert not record.certified
    assert found.answered.queries_needed == 72
    assert found.refused.queries_needed == 36
    message = limits_remedy(found, data_of(70, 80))
    assert message == (
        "--max-answered 0.05 takes 72 certifying unanswerable queries, and there are 40: label about 144 in all with "
        "`taugate judge`; --max-empty 0.1 takes 36 certifying answerable queries, and there are 35: label about 72 in "
        "all with `taugate judge`."
    )
    assert len(message) <= 300
    assert found.refused.found == 0  # what refuses none of those asked is all that is left
    enough, _ = certified(AbstentionRule(0.05, 0.10), alone(np.linspace(2, 3, 36)), alone(np.linspace(0, 1, 72)))
    assert enough.certified


def test_unlimited_refusals_are_measured() -> None:
    rng = np.random.default_rng(1)
    record, found = certified(AbstentionRule(0.2), alone(normal(rng, 1, 500)), alone(normal(rng, 0, 500)))
    assert record.certified
    assert (found.refused.asked, found.refused.queries_needed) == (None, None)
    assert "at most 20 % of unanswerable queries are answered" in found.guarantee
    assert f"at most {percent_at_most(found.refused.upper)} of answerable ones are refused" in found.guarantee
    assert found.refused.upper > found.refused.found > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("limits", [(0.5, 0.35), (0.3, None), (0.2, 0.2)])
def test_joint_limits_hold_confidence(limits: tuple[float, float | None]) -> None:
    """Scores N(1, 1) and N(0, 1), so that both errors at τ are known. What is claimed is `upper`, of both at once.

    The three pairs are at what can be had, half asked for, and out of reach.
    """
    rng, incorrect, trials = np.random.default_rng(2), 0, 400
    for _ in range(trials):
        sample = alone(rng.normal(1, 1, 150)), alone(rng.normal(0, 1, 100))
        record, found = certified(AbstentionRule(*limits), *sample)
        assert record.rho is not None
        refused, answered = stats.norm.cdf(record.rho - 1), stats.norm.sf(record.rho)
        incorrect += refused > found.refused.upper or answered > found.answered.upper
    assert incorrect / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_shared_documents_limit_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve queries that share a document share its score. Taken one by one both claims fail far too often."""
    monkeypatch.setattr(certify, "_REFUSED", ())  # the trade-off is most of the time, and is not looked at
    rng, trials = np.random.default_rng(3), 40
    errors = {"document": 0, "query": 0}
    for _ in range(trials):
        labels = np.repeat(np.arange(60), 12)
        answerable, unanswerable = (np.repeat(rng.normal(mean, 1, 60), 12) for mean in (1.5, 0))
        for unit, count in (("document", labels), ("query", np.arange(720))):
            units = SamplingUnits.from_clusters(count)
            assert units.unit == unit
            sample = (CertifyingScores(scores.astype(np.float32), units) for scores in (answerable, unanswerable))
            record, found = certified(AbstentionRule(0.4, 0.4), *sample)
            assert record.rho is not None
            refused, answered = stats.norm.cdf(record.rho - 1.5), stats.norm.sf(record.rho)
            errors[unit] += refused > found.refused.upper or answered > found.answered.upper
    assert errors["document"] / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)
    assert errors["query"] / trials > 0.15
    assert found.answered.evidence.unit == "query"


# What is asked for.


def test_options_divide_cut_and_refusals() -> None:
    rule, cut = AbstentionRule.from_options(
        {"max_answered": 0.4, "max_empty": 0.1, "metric": "accuracy", "confidence": 0.9}
    )
    assert rule == AbstentionRule(0.4, 0.1, 0.9)
    assert (
        ThresholdRule.from_options(**cut).method == "bootstrap"
    )  # it says nothing of the cut, which stays the papers'
    rule, cut = AbstentionRule.from_options({"max_answered": 0.4, "max_loss": [0.02], "confidence": 0.9})
    assert rule is not None
    assert (rule.max_empty, rule.refusal_limit, rule.confidence_per_limit) == (None, MAX_EMPTY, pytest.approx(0.95))
    assert (ThresholdRule.from_options(**cut).method, ThresholdRule.from_options(**cut).confidence) == (
        "risk-control",
        0.9,
    )
    for requested in ({"strata": "metadata.lang"}, {"policy": "relative"}, {"method": "non-inferiority"}):
        assert (
            ThresholdRule.from_options(
                **AbstentionRule.from_options({"max_answered": 0.4, "confidence": 0.9, **requested})[1]
            ).confidence
            == 0.9
        )
    for requested in ({"policy": "similarity"}, {"method": "bootstrap"}):
        assert (
            ThresholdRule.from_options(
                **AbstentionRule.from_options({"max_answered": 0.4, "confidence": 0.9, **requested})[1]
            ).method
            == "bootstrap"
        )
    rule, cut = AbstentionRule.from_options({"max_empty": 0.1})
    assert rule is None
    assert (ThresholdRule.from_options(**cut).method, ThresholdRule.from_options(**cut).max_empty) == (
        "risk-control",
        0.1,
    )


@pytest.mark.parametrize(
    ("values", "named"),
    [((0.0,), "--max-answered 0"), ((1.0,), "--max-answered 1"), ((float("nan"),), "--max-answered nan"),
     ((0.5, 1.5), "--max-empty 1.5"), ((0.5, 0.0), "--max-empty 0"), ((0.5, 0.1, 0.3), "--confidence 0.3")],
)  # fmt: skip
def test_invalid_shares_are_refused(values: tuple[float, ...], named: str) -> None:
    with pytest.raises(InputError, match=named):
        AbstentionRule(*values)
