"""The gate: exact where the truth is known, honest in both directions, and one decision for several candidates."""

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.acceptance.accept import gate_settings
from taugate.calibration.metrics.inputs import ranking_outcomes
from taugate.calibration.progress import Job
from taugate.calibration.settings import CandidateSettings
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, gate_line, holm, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import QueryLosses
from taugate.evidence.rules import GateSettings

ALPHA = 0.05
ALONE = SamplingUnits.from_clusters(np.arange(1000))


def changed(lost: int, won: int, queries: int) -> QueryLosses:
    """So many queries that the candidate loses, and wins, of a number."""
    counts = np.array([lost, won, queries - lost - won], dtype=float)
    there = counts > 0
    return QueryLosses(np.array([1.0, -1.0, 0.0])[there], np.ones(there.sum()), counts[there])


@pytest.mark.parametrize("lost", [0, 1, 2, 5, 9, 10, 14, 25])
def test_p_value_without_gains_is_binomial(lost: int) -> None:
    losses = QueryLosses.from_clusters((np.arange(1000) < lost).astype(float), np.arange(1000))
    assert losses.p_value(0.01) == pytest.approx(stats.binom.cdf(lost, 1000, 0.01), rel=0.15)
    assert losses.upper_limit(0.95) == pytest.approx(stats.beta.ppf(0.95, lost + 1, 1000 - lost), rel=0.015)


def test_small_losses_match_t_limits() -> None:
    """By the central limit theorem."""
    values = np.random.default_rng(0).normal(0.001, 0.05, 12_000)
    result, error = QueryLosses.from_clusters(values, np.arange(12_000)), stats.sem(values)
    assert result.upper_limit(0.95) == pytest.approx(values.mean() + 1.645 * error, abs=0.1 * error)
    assert result.lower_limit(0.95) == pytest.approx(values.mean() - 1.645 * error, abs=0.1 * error)


@pytest.mark.parametrize(
    "values", [np.zeros(50), np.full(50, 1.0), np.full(50, -1.0), np.full(50, 0.003), np.eye(50)[0]]
)
def test_limits_enclose_sample_mean(values: np.ndarray) -> None:
    result = QueryLosses.from_clusters(values, np.arange(50))
    assert -1 <= result.lower_limit(0.95) <= values.mean() <= result.upper_limit(0.95) <= 1


def admitted(queries: int, margin: float, most: int) -> np.ndarray:
    """Whether so many lost (row) and won (column) queries pass."""
    table = np.zeros((most, most), dtype=bool)
    for lost in range(most):
        for won in range(most):
            if (lost - won) / queries < margin:
                table[lost, won] = changed(lost, won, queries).p_value(margin) <= ALPHA
    return table


def probability(table: np.ndarray, queries: int, lose: float, win: float) -> float:
    """Of being admitted, exactly: lost and won are multinomial."""
    limit = np.arange(len(table))
    total = 0.0
    for lost, p in enumerate(stats.binom.pmf(limit, queries, lose)):
        total += p * stats.binom.pmf(limit, queries - lost, win / (1 - lose))[table[lost]].sum()
    return total


@pytest.mark.parametrize(("queries", "margin"), [(300, 0.02), (700, 0.01), (1000, 0.01)])
def test_loss_at_margin_is_rarely_accepted(queries: int, margin: float) -> None:
    """Whatever the share of queries that change; by enumeration, not by simulation. `make gate-benchmarks` has more."""
    table = admitted(queries, margin, round(queries * 0.035) + 25)
    for share in margin * np.array([1, 1.1, 1.5, 2, 3]):  # that change; their difference is the margin
        assert probability(table, queries, (share + margin) / 2, (share - margin) / 2) <= ALPHA


def test_t_test_accepts_too_often() -> None:
    """Why the gate has no t-test: where all that changes is lost, its 5 % are 7 or 8."""
    lost = np.arange(60)
    error = np.sqrt(lost / 1000 * (1 - lost / 1000) / 1000)
    passes = lost / 1000 + 1.645 * error < 0.02
    assert stats.binom.pmf(lost, 1000, 0.02)[passes].sum() > 0.06


def test_query_copies_add_no_evidence() -> None:
    rng = np.random.default_rng(0)
    once = (rng.random(400) < 0.01).astype(float) - (rng.random(400) < 0.01)
    alone = QueryLosses.from_clusters(once, np.arange(400))
    copied = QueryLosses.from_clusters(np.repeat(once, 5), np.repeat(np.arange(400), 5))
    assert copied.mean == pytest.approx(alone.mean)
    assert copied.upper_limit(0.95) == pytest.approx(alone.upper_limit(0.95), rel=0.1)
    assert (
        copied.upper_limit(0.95)
        > QueryLosses.from_clusters(np.repeat(once, 5), np.arange(2000)).upper_limit(0.95) * 1.3
    )


def test_holm_equals_stepwise_procedure() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = rng.random(rng.integers(1, 7)) ** 3
        rejected = np.zeros(len(p), dtype=bool)
        for step, row in enumerate(np.argsort(p)):  # Holm 1979: stop at the first that is above α / (m − step)
            if p[row] > ALPHA / (len(p) - step):
                break
            rejected[row] = True
        assert ((holm(p) <= ALPHA) == rejected).all()


def outcomes(queries: int, lost: int = 0, won: int = 0) -> tuple[RankingOutcomes, RankingOutcomes]:
    """A baseline that finds two queries of three, and a candidate that loses and wins so many of them."""
    hits = (np.arange(queries) % 3 != 0).astype(float)
    other = hits.copy()
    other[np.flatnonzero(hits == 1)[:lost]] = 0
    other[np.flatnonzero(hits == 0)[:won]] = 1
    return RankingOutcomes(hits, 0.8 * hits), RankingOutcomes(other, 0.8 * other)


def test_lossless_candidate_is_accepted() -> None:
    baseline, same = outcomes(1000)
    _, worse = outcomes(1000, lost=5)
    candidates = [
        GateCandidate("same", "index", same, {"bytes_per_document": 96.0}),
        GateCandidate("worse", "index", worse),
    ]
    good, bad = judge(baseline, candidates, ALONE, GateSettings())
    assert (good.admitted, bad.admitted) == (True, False)
    assert good.accuracy.baseline == good.accuracy.candidate == pytest.approx(2 / 3, abs=1e-3)
    assert good.gain == {"bytes_per_document": 96.0}
    assert bad.accuracy.loss.mean == pytest.approx(0.005)
    assert bad.ndcg.loss.mean == pytest.approx(0.004)
    assert bad.accuracy.loss.upper > bad.margin
    assert (bad.n, bad.clusters, bad.confidence) == (1000, 1000, 0.95)
    assert (good.statement, good.queries_needed, bad.statement) == ("query", None, None)
    assert (good.evidence.unit, good.evidence.units, good.evidence.design_effect) == ("query", 1000, 1)
    assert stats.binom.cdf(0, 1000, good.least) == pytest.approx(ALPHA / 2, rel=1e-4), "one of two candidates"


def test_ndcg_loss_alone_rejects() -> None:
    baseline, same = outcomes(1000)
    low = RankingOutcomes(same.accuracy, same.ndcg - 0.02)
    (result,) = judge(baseline, [GateCandidate("reranked", "projection", low)], ALONE, GateSettings())
    assert not result.admitted
    assert result.accuracy.p < ALPHA < result.ndcg.p == result.p_adjusted


def test_several_candidates_need_more_evidence() -> None:
    """Admitted alone, refused as one of ten of which the others are worse."""
    baseline, slightly = outcomes(2000, lost=4, won=0)
    _, worse = outcomes(2000, lost=30)
    alone = judge(
        baseline, [GateCandidate("c", "index", slightly)], SamplingUnits.from_clusters(np.arange(2000)), GateSettings()
    )[0]
    tried = [GateCandidate("c", "index", slightly)] + [GateCandidate(f"w{row}", "index", worse) for row in range(9)]
    among = judge(baseline, tried, SamplingUnits.from_clusters(np.arange(2000)), GateSettings())[0]
    assert (alone.admitted, among.admitted) == (True, False)
    assert among.p_adjusted == pytest.approx(10 * alone.p_adjusted)


def test_rejection_names_verdict_and_queries() -> None:
    baseline, slightly = outcomes(1000, lost=2)
    _, worse = outcomes(1000, lost=5)
    for outcome, verdict in ((slightly, "cannot tell"), (worse, "worse")):
        (result,) = judge(baseline, [GateCandidate("c", "index", outcome)], ALONE, GateSettings())
        assert (result.admitted, result.verdict) == (False, verdict)
        assert (result.queries_needed is None) == (verdict == "worse")
        assert f"rejected, {verdict}, " in gate_line(result)
        if result.queries_needed is not None:  # as large a share is lost
            assert f"about {result.queries_needed:,} queries like these would show it" in gate_line(result)
            times = result.queries_needed // 1000 + 1
            many, some = outcomes(1000 * times, lost=2 * times)
            assert judge(
                many,
                [GateCandidate("c", "index", some)],
                SamplingUnits.from_clusters(np.arange(1000 * times)),
                GateSettings(),
            )[0].admitted


def test_queries_needed_is_none_near_margin() -> None:
    """A mean just below the margin, of gains and losses that all but cancel."""
    queries = 4000
    baseline, moved = outcomes(queries, lost=1010, won=1000)
    margin = 10 / queries + 1e-9
    units = SamplingUnits.from_clusters(np.arange(queries) // 2)
    (result,) = judge(baseline, [GateCandidate("c", "index", moved)], units, GateSettings(margin))
    assert (result.verdict, result.queries_needed) == ("cannot tell", None)
    assert gate_line(result).endswith("; more queries like these would not show it")


def by_document(sizes: list[int]) -> SamplingUnits:
    return SamplingUnits.from_clusters(np.repeat(np.arange(len(sizes)), sizes))


def test_shared_documents_limit_the_statement() -> None:
    """900 documents of one query and 60 of ten: too few for a statement about queries, at a point."""
    units = by_document([1] * 900 + [10] * 60)
    baseline, same = outcomes(len(units))
    (result,) = judge(baseline, [GateCandidate("same", "index", same)], units, GateSettings(0.01))
    assert (result.admitted, result.statement) == (True, "document")
    assert "margin 0.01 of the average document, p = " in gate_line(result)
    assert result.evidence == units.record
    assert (result.evidence.unit, result.evidence.units) == ("document", 960)
    (result,) = judge(baseline, [GateCandidate("same", "index", same)], units, GateSettings(0.05))
    assert result.statement == "document and query"


def test_query_statement_is_holm_adjusted() -> None:
    """A candidate that hurts only the largest documents is good for the average document: each try may deceive."""
    units = by_document([1] * 300 + [6] * 300)
    baseline = RankingOutcomes(np.ones(len(units)), np.ones(len(units)))
    gone = np.isin(units.clusters, 300 + np.arange(2))
    hurt = RankingOutcomes(1.0 - gone, 1.0 - gone)
    margin = next(
        margin
        for margin in np.arange(0.02, 0.2, 0.0005)
        if judge(baseline, [GateCandidate("c", "index", hurt)], units, GateSettings(margin))[0].statement
        == "document and query"
    )
    several = [GateCandidate(f"c{row}", "index", hurt) for row in range(3)]
    result = judge(baseline, several, units, GateSettings(margin))
    assert [item.statement for item in result] == ["document"] * 3


@pytest.mark.parametrize("each", [1, 5])
def test_document_sizes_do_not_matter(each: int) -> None:
    """In a gate by document it does not matter how many queries have asked for it."""
    units, reference = by_document([each] * 800 + [2] * 5), by_document([2] * 805)
    records = []
    for given in (units, reference):
        kept = np.ones(len(given)) - np.isin(given.clusters, [0, 1])
        baseline, lossy = RankingOutcomes(np.ones(len(given)), np.ones(len(given))), RankingOutcomes(kept, kept)
        records.append(
            judge(
                baseline, [GateCandidate("c", "index", lossy)], SamplingUnits(given.clusters, 2.0), GateSettings(0.02)
            )[0]
        )
    assert records[0].p_adjusted == pytest.approx(records[1].p_adjusted)
    assert records[0].accuracy.loss.mean == pytest.approx(2 / 805)


def test_outcomes_are_accuracy_and_ndcg() -> None:
    queries = [LabelledQuery("a", "", {3: 2, 7: 1}), LabelledQuery("b", "", {9: 1})]
    positions = np.array([[1, 3, 2, 7, *range(20, 28)], [*range(30, 40), 9, 0]])
    result = ranking_outcomes(queries, positions, 1)
    ideal = 2 + 1 / np.log2(3)
    assert result.accuracy.tolist() == [0, 0]
    assert ranking_outcomes(queries, positions, 12).accuracy.tolist() == [1, 1]
    assert result.ndcg.tolist() == pytest.approx([(2 / np.log2(3) + 1 / np.log2(5)) / ideal, 0])


@pytest.mark.parametrize(("margin", "confidence"), [(0, 0.95), (1, 0.95), (float("nan"), 0.95), (0.01, 1), (0.01, 0.4)])
def test_invalid_gate_settings_are_refused(margin: float, confidence: float) -> None:
    with pytest.raises(InputError, match="--margin|--gate-confidence"):
        GateSettings(margin, confidence)


def test_random_samples_have_limits() -> None:
    """Clusters of any size, losses of any kind. The p-value falls as the margin rises, where it can decide anything."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        queries = int(rng.integers(2, 300))
        labels = np.unique(rng.integers(0, rng.integers(1, queries + 1), queries), return_inverse=True)[1]
        share = rng.random() ** 3
        values = (rng.random(queries) < share) * rng.choice([-1.0, 1.0, 0.3], queries, p=[0.3, 0.5, 0.2])
        result = QueryLosses.from_clusters(values, labels)
        margins = np.array([0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.99])
        p_values = np.array([result.p_value(margin) for margin in margins])
        assert ((p_values >= 0) & (p_values <= 1)).all()
        seen = margins < (result.sums / result.sizes).max()  # beyond what any cluster loses, one more is reckoned with
        p_values = p_values[seen]
        assert (np.diff(np.maximum(p_values, 1e-3)) <= 1e-9).all()
        assert -1 <= result.lower_limit(0.95) <= values.mean() <= result.upper_limit(0.95) <= 1


def test_zero_loss_has_smallest_p() -> None:
    for size in (1, 2, 5):
        labels = np.arange(3000) // size
        same, one = (
            QueryLosses.from_clusters(np.zeros(3000), labels),
            QueryLosses.from_clusters((np.arange(3000) < 1).astype(float), labels),
        )
        assert same.p_value(0.005) < one.p_value(0.005) < 0.05


def per_query(accuracy: np.ndarray, ndcg: np.ndarray) -> RankingOutcomes:
    return RankingOutcomes(accuracy.astype(float), ndcg.astype(float))


@pytest.mark.parametrize(
    ("gain", "lost", "verdict"),
    [(0.03, 0, "admitted"), (0.0, 0, "worse"), (0.001, 0, "cannot tell"), (0.03, 20, "worse")],
)
def test_superior_candidate_has_to_gain(gain: float, lost: int, verdict: str) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 1000)
    base = per_query(np.ones(1000), np.full(1000, 0.5))
    better = per_query(np.arange(1000) >= lost, 0.5 + gain + (gain > 0) * (noise - noise.mean()))
    (record,) = judge(base, [GateCandidate("adapter", "adaptation", better)], ALONE, GateSettings(0.01), superior=True)
    assert record.verdict == verdict
    assert record.admitted is (verdict == "admitted")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [80, pytest.param(800, marks=pytest.mark.exhaustive)])
def test_equal_encoders_are_rarely_accepted(rounds: int) -> None:
    rng, admitted = np.random.default_rng(0), 0
    base = per_query(np.ones(300), np.full(300, 0.5))
    units = SamplingUnits.from_clusters(np.arange(300))
    for _ in range(rounds):
        tried = [
            GateCandidate(name, "adaptation", per_query(np.ones(300), 0.5 + rng.normal(0, 0.2, 300)))
            for name in ("whitening", "adapter")
        ]
        admitted += any(item.admitted for item in judge(base, tried, units, GateSettings(0.02), superior=True))
    assert admitted <= stats.binom.ppf(0.99, rounds, 0.05)  # exceeded once in a hundred times


def test_requested_kinds_divide_the_error() -> None:
    errors = [
        1 - gate_settings(CandidateSettings(projection=projection, index=index), ALONE, 1, Job()).confidence
        for projection, index in (("none", "hnsw"), ("query-pca", "hnsw"))
    ]
    assert errors == pytest.approx([0.05, 0.025])


def test_refusal_names_the_lost_query_that_decides() -> None:
    """Of 701 documents, one has a single query: if that is lost, so is the whole document."""
    clusters = np.append(np.repeat(np.arange(700), 2), 700)
    ids = tuple(f"q{row}" for row in range(len(clusters)))
    before = RankingOutcomes(np.ones(1401), np.ones(1401), ids)
    whole, half = (RankingOutcomes(np.ones(1401), np.ones(1401)) for _ in range(2))
    whole.accuracy[1400], half.accuracy[[0, 2, 4, 6, 8, 10]] = 0, 0
    records = [
        judge(
            before, [GateCandidate("int8", "precision", after)], SamplingUnits.from_clusters(clusters), GateSettings()
        )[0]
        for after in (whole, half)
    ]
    assert [record.verdict for record in records] == ["cannot tell", "cannot tell"]
    assert [record.decided_by for record in records] == [
        "1 of 1,401 queries lost its answer; what decides is q1400, the only one about its document",
        "6 of 1,401 queries lost their answer; what decides is q0, one of 2 about its document",
    ]
    assert gate_line(records[0]).endswith(f". {records[0].decided_by}")
    (same,) = judge(
        before, [GateCandidate("int8", "precision", before)], SamplingUnits.from_clusters(clusters), GateSettings()
    )
    assert same.decided_by is None
