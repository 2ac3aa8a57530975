"""PPI++ against its reference implementation, its own formulas written out, and worlds whose true share is known."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.few_labels.prediction_powered import MAX_WIDENING, labels_and_machine, prediction_powered
from taugate.evidence.few_labels.shares import JudgedSample, UnjudgedSample, labels_alone
from taugate.policy.arrays import Float64

World = Callable[[np.random.Generator, tuple[int, int]], tuple[Float64, Float64]]  # outcomes and scores, of any shape
TRIALS = 1000


def samples(outcomes: Float64, scores: Float64, unseen: Float64) -> tuple[JudgedSample, UnjudgedSample]:
    """Take single columns, each query about a document of its own."""
    n, size = len(outcomes), len(unseen)
    return (
        JudgedSample(outcomes.reshape(n, -1), scores.reshape(n, -1), np.arange(n)),
        UnjudgedSample(unseen.reshape(size, -1), np.arange(n, n + size)),
    )


def probabilities(share: float, sharpness: float) -> World:
    """The machine gives the true probability of each query; the lower the sharpness, the nearer it is to 0 or 1."""

    def draw(rng: np.random.Generator, size: tuple[int, int]) -> tuple[Float64, Float64]:
        chances = rng.beta(share * sharpness, (1 - share) * sharpness, size)
        return (rng.random(size) < chances).astype(np.float64), chances

    return draw


def judge(share: float, false_hits: float, false_misses: float) -> World:
    """The machine says yes or no, and is wrong at these rates."""

    def draw(rng: np.random.Generator, size: tuple[int, int]) -> tuple[Float64, Float64]:
        truth, luck = rng.random(size) < share, rng.random(size)
        return truth.astype(np.float64), np.where(truth, luck >= false_misses, luck < false_hits).astype(np.float64)

    return draw


# What ppi-python 0.2.3 answers, ppi_mean_pointestimate(Y, f, F) and ppi_mean_ci(Y, f, F, alpha=0.05).
@pytest.mark.parametrize(
    ("share", "sharpness", "value", "interval"),
    [
        (0.5, 1.0, 0.506345074430721, (0.4957881173050546, 0.5169020315563873)),
        (0.8, 3.0, 0.8025758312894427, (0.7927780465874649, 0.8123736159914204)),
        (0.3, 0.3, 0.3003377862790935, (0.2925371805541673, 0.30813839200401977)),
    ],
)
def test_many_labels_match_reference_implementation(
    share: float, sharpness: float, value: float, interval: tuple[float, float]
) -> None:
    rng = np.random.default_rng(7)
    chances = rng.beta(share * sharpness, (1 - share) * sharpness, 25_000)
    outcomes = (rng.random(25_000) < chances).astype(np.float64)
    result = prediction_powered(*samples(outcomes[:5000], chances[:5000], chances[5000:]), 0.95)
    # It fits λ to all labels at once, and spreads f over all queries: hundredths of the interval's width apart.
    assert result.value[0] == pytest.approx(value, abs=1e-4)
    assert (result.lower[0], result.upper[0]) == pytest.approx(interval, abs=4e-4)


def test_estimate_equals_written_formulas() -> None:
    rng = np.random.default_rng(3)
    y, f = (item.ravel() for item in probabilities(0.4, 1.0)(rng, (30, 1)))
    unseen = probabilities(0.4, 1.0)(rng, (200, 1))[1].ravel()
    documents = np.repeat(np.arange(15), 2)
    corrected, weights = [], []
    for i in range(30):
        remaining = documents != documents[i]
        slope = np.cov(y[remaining], f[remaining])[0, 1] / np.var(f[remaining], ddof=1)
        weights.append(max(0.0, slope) / (1 + 30 / 200))
        corrected.append(y[i] + weights[-1] * (unseen.mean() - f[i]))
    errors = max(sum((item - np.mean(corrected)) ** 2 for item in corrected), -np.log(0.05))
    variance = 2 * errors / 30**2 + np.mean(weights) ** 2 * np.var(unseen) / 200  # each document has two labels
    result = prediction_powered(
        JudgedSample(y[:, None], f[:, None], documents), UnjudgedSample(unseen[:, None], np.arange(100, 300)), 0.95
    )
    assert result.value[0] == pytest.approx(np.mean(corrected), rel=1e-12)
    assert result.weight[0] == pytest.approx(np.mean(weights), rel=1e-12)
    assert result.effective_labels[0] == pytest.approx(np.var(y) / variance, rel=1e-12)


def test_weighted_ratio_equals_written_formulas() -> None:
    rng = np.random.default_rng(11)
    n, size = 40, 160
    y, f = (item.ravel() for item in probabilities(0.4, 1.0)(rng, (n, 1)))
    unseen = probabilities(0.4, 1.0)(rng, (size, 1))[1].ravel()
    w = rng.choice([0.5, 1.0, 4.0], n)
    a = np.maximum(y, rng.random(n) < 0.7)
    v = w / w.mean()
    ratio = sum(v * y) / sum(v * a)
    # What people judge more often than its share is missing among the rest: all queries together have this mean.
    of_all = (f.sum() + unseen.sum()) / (n + size)
    message, slopes = [], []
    for i in range(n):
        remaining = np.arange(n) != i
        fitted = np.polynomial.polynomial.polyfit(f[remaining], (y - ratio * a)[remaining], 1, w=v[remaining])
        slopes.append(max(0.0, float(fitted[1])) / (1 + n / size))
        expected = of_all + n / size * (of_all - (v * f).mean())
        message.append(slopes[-1] * (f[i] - expected))
    value = ratio - (v * message).mean() / (v * a).mean()
    errors = max(sum((v * (y - value * a - message)) ** 2), -np.log(0.05) * (v**2).mean())
    variance = (errors / n**2 + (v * slopes).mean() ** 2 * np.var(unseen) / size) / (v * a).mean() ** 2
    kish = v.sum() ** 2 / (v**2).sum()
    factor = (stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, kish - 1)) ** 2
    judged = JudgedSample(y[:, None], f[:, None], np.arange(n), w, a > 0)
    result = prediction_powered(judged, UnjudgedSample(unseen[:, None], np.arange(n, n + size)), 0.95)
    assert result.value[0] == pytest.approx(value, rel=1e-10)
    assert result.weight[0] == pytest.approx((v * slopes).mean(), rel=1e-10)
    assert result.effective_labels[0] == pytest.approx(ratio * (1 - ratio) / variance * factor, rel=1e-10)


def test_equal_weights_change_nothing() -> None:
    rng = np.random.default_rng(2)
    outcomes, scores = probabilities(0.5, 1.0)(rng, (50, 3))
    unjudged = UnjudgedSample(probabilities(0.5, 1.0)(rng, (300, 3))[1], np.arange(50, 350))
    documents = np.repeat(np.arange(25), 2)
    plain = prediction_powered(JudgedSample(outcomes, scores, documents), unjudged, 0.95)
    same = prediction_powered(
        JudgedSample(outcomes, scores, documents, np.full(50, 3.7), np.ones(50, bool)), unjudged, 0.95
    )
    for name in ("value", "lower", "upper", "effective_labels", "weight"):
        np.testing.assert_allclose(getattr(same, name), getattr(plain, name), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("unanswerable", [0.0, 0.3])
@pytest.mark.parametrize("near", [0.4, 0.6, 0.8])
def test_interval_holds_with_unequal_sampling(near: float, unanswerable: float) -> None:
    """A tenth of the queries is judged, and more of those whose best score is near the threshold."""
    rng = np.random.default_rng([round(10 * near), round(10 * unanswerable)])
    held, naive, trials, size = 0, 0, 400, 600
    grid = np.linspace(0, 1, 100_001)
    answered = 1 - unanswerable * (1.5 - grid)

    def lost(best: Float64) -> Float64:
        """The chance that a query is lost, by its best score: never where it is clearly above the threshold."""
        return np.where(best < 0.3, 0.6, np.where(best < 0.7, 0.2, 0.0))

    truth = float((answered * lost(grid)).mean() / answered.mean())
    for _ in range(trials):
        best = rng.random(size)
        stratum = np.digitize(best, [0.3, 0.7])
        answerable = rng.random(size) >= unanswerable * (1.5 - best)
        outcomes = ((rng.random(size) < lost(best)) & answerable).astype(np.float64)
        weights = np.zeros(size)
        for number, share in enumerate([(1 - near) / 2, near, (1 - near) / 2]):
            members = np.flatnonzero(stratum == number)
            chosen = rng.choice(members, round(60 * share), replace=False)
            weights[chosen] = len(members) / len(chosen)
        requested, remaining = weights > 0, weights == 0
        result, unweighted = (
            labels_and_machine(
                JudgedSample(
                    outcomes[requested, None],
                    lost(best)[requested, None],
                    np.flatnonzero(requested),
                    item,
                    answerable[requested],
                ),
                UnjudgedSample(lost(best)[remaining, None], np.flatnonzero(remaining)),
                0.95,
            )
            for item in (weights[requested], None)
        )
        held += bool(result.lower[0] <= truth <= result.upper[0])
        naive += bool(unweighted.lower[0] <= truth <= unweighted.upper[0])
    assert held / trials >= 0.93
    if near == 0.8 and not unanswerable:
        assert naive < held  # the weights are what makes it hold


@pytest.mark.parametrize("n", [25, 50, 100])
@pytest.mark.parametrize(
    ("share", "world"),
    [
        (0.5, probabilities(0.5, 1.0)),
        (0.2, probabilities(0.2, 0.3)),
        (0.9, probabilities(0.9, 10.0)),
        (0.5, judge(0.5, 0.1, 0.0)),  # all of its mistakes are of one kind, and few labels show them
        (0.35, judge(0.35, 0.05, 0.0)),
        (0.9, judge(0.9, 0.0, 0.1)),
        (0.2, judge(0.2, 0.0, 0.0)),
        (0.5, judge(0.5, 0.5, 0.5)),  # of no use
        (0.5, judge(0.5, 0.9, 0.9)),  # wrong nearly always
    ],
)
def test_interval_holds_and_rarely_widens(n: int, share: float, world: World) -> None:
    rng = np.random.default_rng([n, round(100 * share)])
    outcomes, scores = world(rng, (n, TRIALS))
    unseen = world(rng, (500, TRIALS))[1]
    both = samples(outcomes, scores, unseen)
    together, alone = labels_and_machine(*both, 0.95), labels_alone(both[0], 0.95)
    assert np.mean((together.lower <= share) & (share <= together.upper)) >= 0.93
    assert (together.width <= MAX_WIDENING * alone.width + 1e-12).all()


def test_interval_holds_with_shared_documents() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(TRIALS):
        # A document has 1 to 9 queries, which are all hits or all misses; the machine sees through it half the time.
        documents = np.repeat(np.arange(300), rng.integers(1, 10, 300))
        truth = (rng.random(300) < 0.6)[documents].astype(np.float64)[:, None]
        scores = np.where(rng.random((300, 1))[documents] < 0.5, truth, 0.5)
        order = rng.permutation(len(truth))
        some, remaining = order[:50], order[50:]
        result = labels_and_machine(
            JudgedSample(truth[some], scores[some], documents[some]),
            UnjudgedSample(scores[remaining], documents[remaining]),
            0.95,
        )
        held += bool(result.lower[0] <= 0.6 <= result.upper[0])
    assert held / TRIALS >= 0.93


def test_good_machine_narrows_interval() -> None:
    rng = np.random.default_rng(1)
    world = probabilities(0.5, 1.0)  # R² = .5
    outcomes, scores = world(rng, (50, TRIALS))
    both = samples(outcomes, scores, world(rng, (2000, TRIALS))[1])
    ratio = labels_and_machine(*both, 0.95).width / labels_alone(both[0], 0.95).width
    assert ratio.mean() < 0.75


def test_uncheckable_machine_leaves_labels_alone() -> None:
    def perfect(hits: int) -> tuple[JudgedSample, UnjudgedSample]:
        outcomes = (np.arange(50) < hits).astype(np.float64)
        return samples(outcomes, outcomes, (np.arange(500) < 10 * hits).astype(np.float64))

    for hits in (4, 46):
        judged, unjudged = perfect(hits)
        alone = labels_alone(judged, 0.95)
        for result in (labels_and_machine(judged, unjudged, 0.95), labels_and_machine(judged, None, 0.95)):
            assert (result.value, result.lower, result.upper, result.weight) == (
                alone.value,
                alone.lower,
                alone.upper,
                0.0,
            )
    for hits in (5, 45):
        assert labels_and_machine(*perfect(hits), 0.95).weight > 0


def test_wrong_machine_has_zero_weight() -> None:
    outcomes = np.array([1.0, 0.0] * 20)
    both = samples(outcomes, 1 - outcomes, np.array([1.0, 0.0] * 100))
    assert prediction_powered(*both, 0.95).weight == 0


def test_constant_machine_changes_nothing() -> None:
    outcomes = np.array([1.0, 0.0] * 20)
    both = samples(outcomes, np.full(40, 0.7), np.full(100, 0.7))
    together, alone = labels_and_machine(*both, 0.95), labels_alone(both[0], 0.95)
    np.testing.assert_allclose([together.lower, together.upper], [alone.lower, alone.upper])
    assert together.weight == 0


def test_score_scale_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    outcomes, scores = probabilities(0.5, 1.0)(rng, (50, 1))
    unseen = rng.random(300)
    one = labels_and_machine(*samples(outcomes, scores, unseen), 0.95)
    other = labels_and_machine(*samples(outcomes, 1000 * scores - 3, 1000 * unseen - 3), 0.95)
    np.testing.assert_allclose([one.lower, one.upper, one.value], [other.lower, other.upper, other.value], rtol=1e-9)


def test_single_document_uses_labels_alone() -> None:
    one = samples(np.ones(1), np.ones(1), np.zeros(5))
    assert labels_and_machine(*one, 0.95).lower[0] == pytest.approx(0.025)
    together = JudgedSample(np.array([[1.0], [0.0]] * 6), np.array([[1.0], [0.0]] * 6), np.zeros(12, np.int64))
    result = labels_and_machine(together, UnjudgedSample(np.zeros((5, 1)), np.arange(5)), 0.95)
    assert result.weight[0] == 0


def test_mismatched_outcomes_are_refused() -> None:
    sample, _ = samples(np.ones(12), np.ones(12), np.ones(5))
    with pytest.raises(ValueError, match="1 outcomes, but unjudged ones have 2"):
        labels_and_machine(sample, UnjudgedSample(np.zeros((5, 2)), np.arange(5)), 0.95)
