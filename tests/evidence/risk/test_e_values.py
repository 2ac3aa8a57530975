"""Evidence by document against its definition, written out, and where the truth is known."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import HoldoutSplit
from taugate.evidence.ranking import JudgedQueries, ideal_dcg
from taugate.evidence.risk.certify import p_values, upper_loss_limit
from taugate.evidence.risk.losses import (
    DocumentBets,
    DocumentLosses,
    min_detectable_loss,
    paired_losses,
    sample_size_factor,
)
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import WIDEST_MARGIN, default_margin
from taugate.policy.policy import keep
from taugate.retrieval.index.top_k import TopK

TRIALS = 2000
ALLOWED = 0.05 + 2 * math.sqrt(0.05 * 0.95 / TRIALS)


def literal_e(losses: np.ndarray, sizes: np.ndarray, margin: float) -> float:
    """Σ w Π (1 + λ·(δ·n − L)): one factor for each document."""
    largest = max(sizes * (1 - margin))
    mixture = ((1 - 1e-6, 0.5), (0.95, 0.3), (0.7, 0.2))
    return sum(share * np.prod(1 + part / largest * (margin * sizes - losses)) for part, share in mixture)


def random_losses(seed: int, documents: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Queries that lose, win and mostly change nothing, of documents of one to five; in any order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(documents), rng.integers(1, 6, documents)))
    return rng.choice([0.0, 1.0, -1.0, 0.4], len(labels), p=[0.85, 0.07, 0.05, 0.03]), labels


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("margin", [0.05, 0.2, -0.1])
def test_p_value_inverts_document_product(seed: int, margin: float) -> None:
    losses, labels = random_losses(seed)
    of_document = [losses[labels == document] for document in range(30)]
    means = np.array([item.mean() for item in of_document])
    sizes = np.array([len(item) for item in of_document], dtype=float)
    result = DocumentLosses.from_clusters(losses, labels)
    assert result.mean == pytest.approx(means.mean())
    assert result.p_value(margin) == pytest.approx(min(1.0, 1 / literal_e(means, np.ones(30), margin)), rel=1e-4)
    of_queries = DocumentLosses.from_clusters(losses, labels, "query")
    assert of_queries.mean == pytest.approx(losses.mean())
    assert of_queries.p_value(margin) == pytest.approx(min(1.0, 1 / literal_e(means * sizes, sizes, margin)), rel=1e-4)


@pytest.mark.parametrize("statement", ["document", "query"])
def test_limits_invert_p_value(statement: str) -> None:
    for seed in range(10):
        result = DocumentLosses.from_clusters(*random_losses(seed), statement)  # type: ignore[arg-type]
        upper, lower = result.upper_limit(0.95), result.lower_limit(0.95)
        assert -1 <= lower < result.mean < upper <= 1
        assert upper == 1 or result.p_value(upper) == pytest.approx(0.05, abs=1e-6)
        assert all(result.p_value(margin) <= 0.05 for margin in np.linspace(upper, 1, 50)[1:-1])


def test_limit_after_passed_test_is_below_its_margin() -> None:
    """The largest document loses nothing, and several small ones lose everything."""
    labels = np.concatenate([np.zeros(60, dtype=int), np.repeat(np.arange(1, 61), 20)])
    passed = 0
    for lost in range(8):
        result = DocumentLosses.from_clusters(((labels > 0) & (labels <= lost)).astype(float), labels, "query")
        for margin in (0.1, 0.2, 0.3, 0.5):
            if result.p_value(margin) <= 0.05:
                passed += 1
                assert result.mean < result.upper_limit(0.95, requested=margin) <= margin
    assert passed > 5


def graded_queries(seed: int) -> tuple[JudgedQueries, np.ndarray, SamplingUnits]:
    """Several relevant documents for each query; decision scores have ties within a document and between them."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(15), rng.integers(1, 7, 15)))
    n, k = len(labels), 4
    grades = np.maximum(rng.integers(-3, 3, size=(n, k)), 0)
    ideal = np.array([ideal_dcg([*(grade for grade in row if grade), 1], k) for row in grades.tolist()])
    scores = -np.sort(-rng.uniform(size=(n, k)), axis=1).astype(np.float32)
    decisions = (rng.integers(0, 12, size=(n, k)) / 10).astype(np.float32)
    return (
        JudgedQueries(TopK(scores, np.zeros((n, k), np.int64)), grades, ideal, scores[:, 0]),
        decisions,
        SamplingUnits.from_clusters(labels),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["accuracy", "ndcg", "empty"])
def test_steps_wealth_equals_losses_wealth(name: str, seed: int) -> None:
    queries, decisions, units = graded_queries(seed)
    if name == "empty":
        steps = LossSteps.of_empty(decisions, units)
    else:
        steps = (LossSteps.of_accuracy if name == "accuracy" else LossSteps.of_ndcg)(queries, decisions, units)
    assert steps.documents is not None
    assert steps.documents.sizes.tolist() == [int((units.clusters == document).sum()) for document in range(15)]
    everything = np.ones(len(decisions)) if name == "empty" else queries.lost(name, decisions > 9)  # type: ignore[arg-type]
    np.testing.assert_allclose(steps.documents.losable, np.bincount(units.clusters, everything))
    above = [*(np.nextafter(steps.candidates, np.float32(9))), np.float32(-1)]
    for place, tau in zip([*range(1, len(steps.candidates) + 1), 0], above, strict=True):
        kept = keep(decisions, tau)
        lost = 1.0 - kept.any(axis=1) if name == "empty" else queries.lost(name, kept)  # type: ignore[arg-type]
        sums = np.array([lost[units.clusters == document].sum() for document in range(15)])
        assert steps.documents.losses_at(place).mean == pytest.approx(lost.mean())
        bets = steps.documents.bets(0.2)
        literal = float(bets.log_e(bets.log_wealth(sums, steps.documents.sizes).sum(axis=1)))
        assert steps.documents.log_e(0.2)[place] == pytest.approx(literal, abs=1e-8)
        assert p_values(steps, 0.2)[place] == pytest.approx(min(1.0, math.exp(-literal)))
        assert steps.documents.losses_at(place).p_value(0.2) == pytest.approx(p_values(steps, 0.2)[place])
    assert (np.diff(p_values(steps, 0.2)) >= 0).all(), "what loses more is less certain"
    tau = float(steps.candidates[2])
    place, limit = steps.places(np.array([tau], np.float32))[0], upper_loss_limit(steps, tau, 0.9)
    assert limit == 1 or p_values(steps, limit)[place] == pytest.approx(0.1, abs=1e-6)
    assert upper_loss_limit(steps, tau, 0.9, requested=limit + 0.01) <= limit + 0.01


# The null hypothesis: the expected wealth is at most 1.


@pytest.mark.parametrize("delta", [0.02, 0.3, 0.5, -0.1])
def test_expected_wealth_is_at_most_one_for_given_sizes(delta: float) -> None:
    """Σ E L = δ·Σ n, however losses and gains fall on the documents."""
    rng, tried = np.random.default_rng(1), 0
    sizes = rng.integers(1, 20, 50).astype(float)
    bets = DocumentBets.against(delta, sizes, sizes)
    for _ in range(400):
        losses = rng.random(50) ** rng.integers(1, 20) - rng.choice([0.0, 0.2]) * rng.random(50)
        losses *= delta * sizes.sum() / (losses @ sizes)
        if np.abs(losses).max() <= 1:
            tried += 1
            assert float(bets.log_e(bets.log_wealth(losses * sizes, sizes).sum(axis=1))) <= 1e-9
    assert tried > 5


@pytest.mark.parametrize("delta", [0.02, 0.1])
def test_expected_wealth_is_one_for_drawn_documents(delta: float) -> None:
    """Documents of 1, 2 or 9 queries are lost whole, all or only the largest, with E L = δ·E n."""
    sizes, shares = np.array([1.0, 2.0, 9.0]), np.array([0.7, 0.2, 0.1])
    bets = DocumentBets.against(delta, sizes, sizes)
    lost, kept = (np.exp(bets.log_wealth(losses, sizes)) for losses in (sizes, np.zeros(3)))
    for chances in (np.full(3, delta), np.array([0, 0, delta * (sizes @ shares) / (9 * 0.1)])):
        np.testing.assert_allclose((lost * chances + kept * (1 - chances)) @ shares, 1)


@pytest.mark.parametrize("documents", [300, 597, 598, 700, 947, 1200, 5000])
def test_lossless_comparison_passes_wherever_binomial_does(documents: int) -> None:
    units = SamplingUnits.from_clusters(np.repeat(np.arange(documents), 2))
    for level in (0.05, 0.05 / 3):
        p_value = paired_losses(np.zeros(len(units)), units, level=level).p_value(0.005)
        assert (p_value <= level * (1 + 1e-9)) == (0.995**documents <= level)


@pytest.mark.parametrize("documents", [598, 947, 1200, 3000])
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_planned_bet_holds_level(documents: int, part: float) -> None:
    """Documents lose everything, or a half, with the chance that makes the mean loss the margin."""
    margin, size, passed = 0.005, 0.0, 0
    for lost in range(60):
        counts = np.array([documents - lost, lost], dtype=float)
        result = DocumentLosses(np.array([0.0, part]), np.ones(2), counts, np.ones(2), level=0.05)
        if result.p_value(margin) <= 0.05:
            passed += 1
            size += stats.binom.pmf(lost, documents, margin / part)
    assert size <= 0.05
    assert passed


# How often what is false is said. The loss is the margin, exactly.


@pytest.mark.parametrize("margin", [0.1, 0.15, 0.3])
@pytest.mark.parametrize("statement", ["document", "query"])
def test_whole_document_losses_hold_level(margin: float, statement: str) -> None:
    """40 documents of five queries, each lost whole with that probability."""
    labels, size, passed = np.repeat(np.arange(40), 5), 0.0, 0
    for lost in range(41):
        result = DocumentLosses.from_clusters((labels < lost).astype(float), labels, statement)  # type: ignore[arg-type]
        if result.p_value(margin) <= 0.05:
            passed += 1
            size += stats.binom.pmf(lost, 40, margin)
    assert size <= 0.05
    assert passed, "a test that never rejects is always right"


def test_partial_document_losses_hold_level() -> None:
    margin = 0.2
    for half_share in (0.1, 0.2, 0.4):
        size, whole_share = 0.0, margin - half_share / 2
        for complete in range(20):
            for half in range(41 - complete):
                counts = np.array([40 - complete - half, half, complete], dtype=float)
                result = DocumentLosses(np.array([0.0, 0.5, 1.0]), np.ones(3), counts, np.ones(3))
                if result.mean < margin and result.p_value(margin) <= 0.05:
                    size += stats.multinomial.pmf(counts, 40, [1 - whole_share - half_share, half_share, whole_share])
        assert size <= 0.05


def rejected(terms: np.ndarray, weights: np.ndarray, margin: float) -> float:
    """Share of trials whose e-value reaches 20.

    Args:
        terms: (trials, documents), the part of each document that is lost.
        weights: (documents,).
        margin: True mean loss, which is tested.
    """
    bets = DocumentBets.against(margin, weights, weights)
    wealth = bets.log_wealth(terms * weights, np.broadcast_to(weights, terms.shape)).sum(axis=2)
    return float((bets.log_e(wealth) >= math.log(20)).mean())


LARGE_AND_SMALL = np.repeat([1.0, 2.0, 5.0, 15.0], [100, 60, 30, 10])


@pytest.mark.parametrize("least", [1, 2, 5, 15])
@pytest.mark.parametrize("together", [True, False])
def test_large_document_losses_hold_level(least: int, together: bool) -> None:
    """Documents of so many queries or more lose, whole or query by query, as many queries as the margin."""
    rng, sizes, margin = np.random.default_rng(least), LARGE_AND_SMALL, 0.12
    large = sizes >= least
    share = margin * sizes.sum() / sizes[large].sum()
    lost = rng.binomial(1 if together else sizes.astype(int), np.where(large, share, 0), size=(TRIALS, len(sizes)))
    means = lost.astype(float) if together else lost / sizes
    assert rejected(means, sizes, margin) <= ALLOWED


@pytest.mark.parametrize("found", [0.5, 0.9])
@pytest.mark.parametrize("together", [True, False])
def test_cut_holds_level_if_found_answers_are_chance(found: float, together: bool) -> None:
    """Only answers that were found can be lost; which ones were found is drawn in every trial, like the losses."""
    rng, sizes, delta, passed, trials = np.random.default_rng(4), LARGE_AND_SMALL, 0.1, 0, 600
    lost_share = delta / found
    for _ in range(trials):
        number = sizes.astype(int)
        hits = np.where(rng.random(len(sizes)) < found, number, 0) if together else rng.binomial(number, found)
        lost = hits * (rng.random(len(sizes)) < lost_share)
        losses = DocumentLosses.from_documents(lost.astype(float), sizes, hits.astype(float))
        passed += losses.p_value(delta) <= 0.05
    assert passed / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("gains", [0.0, 0.5])
def test_worst_case_losses_hold_level(gains: float) -> None:
    """Large documents are lost whole so often that no loss at all is as likely as it can be, and some are gained."""
    rng, sizes, margin = np.random.default_rng(3), LARGE_AND_SMALL, 0.12
    kappa = optimize.brentq(lambda kappa: np.clip(sizes - kappa, 0, None).sum() - margin * sizes.sum(), 0, 15)
    losses = np.clip(1 - kappa / sizes, 0, 1)
    assert losses @ sizes / sizes.sum() == pytest.approx(margin, rel=1e-4)
    uniform = rng.random((TRIALS, len(sizes)))
    gained = gains * np.minimum(losses, 1 - losses) / 2
    terms = (uniform < losses + gained).astype(float) - (uniform > 1 - gained)
    assert rejected(terms, sizes, margin) <= ALLOWED


@pytest.mark.parametrize(("documents", "margin"), [(100, 0.05), (400, 0.01)])
@pytest.mark.parametrize("whole", [1.0, 0.5])
def test_mixed_losses_hold_level(documents: int, margin: float, whole: float) -> None:
    """Of ten queries each; that share of the loss falls on whole documents, the rest on queries one by one."""
    rng = np.random.default_rng(documents)
    gone = rng.random((TRIALS, documents)) < margin * whole
    single = (margin - margin * whole) / (1 - margin * whole)
    terms = np.where(gone, 1.0, rng.binomial(10, single, size=gone.shape) / 10)
    assert rejected(terms, np.ones(documents), margin) <= ALLOWED


# What the labels can show, said beforehand.


@pytest.mark.parametrize("sizes", [[1] * 500, [3] * 200, [1] * 300 + [8] * 40, [2]])
def test_zero_loss_passes_at_detectable_margin(sizes: list[int]) -> None:
    units = SamplingUnits.from_clusters(np.repeat(np.arange(len(sizes)), sizes))
    smallest, nothing = min_detectable_loss(units, 0.95), paired_losses(np.zeros(len(units)), units)
    assert nothing.p_value(smallest + 1e-6) <= 0.05 < nothing.p_value(0.99 * smallest)
    margin = default_margin(0.001, smallest)
    if smallest <= WIDEST_MARGIN:
        assert nothing.p_value(margin) <= 0.05
        assert smallest <= margin + 1e-9 < smallest + 0.001 + 2e-9
    else:
        assert margin == 0.001


@pytest.mark.parametrize(
    ("least", "margin"), [(0.002, 0.005), (0.005, 0.005), (0.0051, 0.006), (0.05, 0.05), (0.0501, 0.005), (1.0, 0.005)]
)
def test_default_margin_follows_detectable_loss(least: float, margin: float) -> None:
    assert default_margin(0.005, least) == pytest.approx(margin)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 4])
def test_sample_size_factor_is_minimal(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(150), size)
    losses = rng.choice([0.0, 1.0, -1.0], len(labels), p=[0.97, 0.015, 0.015])
    result = paired_losses(losses, SamplingUnits.from_clusters(labels))
    margin = max(result.mean, 0.0) + 0.01
    factor = sample_size_factor(result, margin, 0.05)
    assert factor is not None
    times = math.ceil(factor)
    many = np.concatenate([labels + 150 * copy for copy in range(times)])
    assert paired_losses(np.tile(losses, times), SamplingUnits.from_clusters(many)).p_value(margin) <= 0.05
    assert result.times(factor).p_value(margin) <= 0.05
    assert factor == 1 or result.times(0.98 * factor).p_value(margin) > 0.05


def test_sample_size_factor_is_none_at_margin() -> None:
    losses, labels = np.repeat([1.0, 0.0], [20, 380]), np.arange(400) // 2
    for margin in (0.049, 0.05, 0.05 + 1e-9):
        assert sample_size_factor(paired_losses(losses, SamplingUnits.from_clusters(labels)), margin, 0.05) is None


# Who is held out, and what counts as one draw.


def test_unit_depends_on_design_effect() -> None:
    at, above = np.array([*range(18), 18, 18]), np.array([*range(17), 17, 17])
    assert SamplingUnits.from_clusters(at).design_effect == pytest.approx(1.1)
    assert (SamplingUnits.from_clusters(at).unit, SamplingUnits.from_clusters(above).unit) == ("query", "document")
    assert (SamplingUnits.from_clusters(at).count, SamplingUnits.from_clusters(above).count) == (20, 18)
    assert SamplingUnits.from_clusters(above).record.model_dump() == {
        "unit": "document",
        "units": 18,
        "design_effect": 21 / 19,
    }


def test_subset_keeps_unit() -> None:
    units = SamplingUnits.from_clusters(np.array([7, 7, 7, 10**9, 3, 3]))
    assert units.design_effect == pytest.approx((9 + 1 + 4) / 6)
    some = units.take(np.array([0, 3, 4]))
    assert (some.unit, some.count, some.design_effect) == ("document", 3, units.design_effect)
    assert sorted(units.sizes().tolist()) == [1, 2, 3]
    assert units.words == "6 queries about 3 documents"
    alone = SamplingUnits.from_clusters(np.zeros(9, dtype=np.int64))
    assert (alone.count, alone.design_effect, alone.words) == (1, 9, "9 queries about documents that all of them share")


def literal_split(labels: list[int], seed: int, holdout: float) -> tuple[list[int], list[int]]:
    """The contract: clusters by their first query take the place of queries; the last of them until there is enough."""
    order = np.random.default_rng(seed).permutation(max(labels) + 1).tolist()
    held: set[int] = set()
    while sum(label in held for label in labels) < round(holdout * len(labels)) and len(order) > 1:
        held.add(order.pop())
    rows = range(len(labels))
    return [row for row in rows if labels[row] not in held], [row for row in rows if labels[row] in held]


@pytest.mark.parametrize("holdout", [0.3, 0.05, 0.9, 0.999])
def test_holdout_by_document_follows_contract(holdout: float) -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        drawn = rng.permutation(np.repeat(np.arange(40), rng.integers(1, 9, 40)))
        _, first, inverse = np.unique(drawn, return_index=True, return_inverse=True)
        labels = np.argsort(np.argsort(first))[inverse]  # numbered by their first query
        result = HoldoutSplit.by_document(np.random.default_rng(seed), labels, holdout)
        assert (result.calibration.tolist(), result.heldout.tolist()) == literal_split(labels.tolist(), seed, holdout)
        assert len(result.heldout) >= round(holdout * len(labels)) or len(set(labels[result.calibration])) == 1


def test_zero_holdout_draws_nothing() -> None:
    rng = np.random.default_rng(0)
    result = HoldoutSplit.by_document(rng, np.array([0, 1, 1, 0]), 0)
    assert (result.calibration.tolist(), result.heldout.tolist()) == ([0, 1, 2, 3], [])
    assert rng.random() == np.random.default_rng(0).random()
    assert HoldoutSplit.by_document(rng, np.zeros(5, dtype=np.int64), 0.5).calibration.tolist() == [0, 1, 2, 3, 4]
