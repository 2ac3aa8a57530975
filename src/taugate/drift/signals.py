"""What drift detection watches: signals of each query, how far similarities are from those calibrated, and its rules.

COE and ROE: how far top-K similarities overlap with those of correct and of random documents, calibrated and live.
Thresholds paper §2.3, eq. 1 and 2. The papers leave open which percentile of S_topK gives θ. On their own telecom
questions the 5th gives the published means of MiniLM, COE within 0.4 points and ROE within 0.2, which the minimum does
not, hence the default. Their intervals are wider than this percentile gives (docs/papers.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.drift.observations import JudgedReplies, Judgements, Observations, calibration_observations
from taugate.policy.arrays import Float32, Float64
from taugate.release.evidence import Interval
from taugate.release.outcome_records import BootstrapRecord
from taugate.release.queries import Reference

# Half of Cohen's small effect: a share of 50 % that becomes 55 %, or one of 5 % that becomes 7.4 %.
MIN_EFFECT = 0.1
# Distinct queries between false alarms. While all means are just within their bounds, the probability of a false alarm
# of any signal within N queries is at most N over this: one in four for a hundred queries a second all month. Further
# within the bounds there are none.
AVERAGE_RUN_LENGTH = 1e9
# Distinct queries in a block unless the settings say otherwise. Bursts of 200 queries on one topic then raise no alarm,
# and a wrong corpus is detected within 1,500 queries (benchmarks/results/drift.md).
BLOCK = 200
MIN_IN_BLOCK, MAX_IN_BLOCK = 25, 10_000  # at least five queries in each fifth; 10,000 take 160 kB
# Blocks of judged replies are so many times smaller: few replies are judged, so a burst of queries leaves few of them.
# A mean of five gives away hardly any evidence; means of 40 find a loss of a fifth of the relevant replies four times
# as late.
_JUDGED = 8
# As many queries as a bootstrap draws by default (l in the paper); with fewer, COE and ROE have very wide intervals.
MIN_IN_WINDOW = 100

BlockRule = int | Literal["auto"]

_BINS = 10  # of equal share in the reference, as in credit scoring, which PSI comes from
_MIN_SHARE = 1e-4  # share of an empty bin, whose logarithm would be infinite

# Percentiles of the top-K similarities that are watched: the middle, both tails, and values that hardly ever occur,
# which show queries on foreign topics soonest.
_PERCENTILES = (0.1, 5, 50, 95, 99.9)
# Reciprocal ranks have few values, and another k changes how often a query has which: 61 for 60 moves all that have
# 2 / 61 to 2 / 62. About as many as before are at or below a percentile. So frequent values, which at least a hundredth
# of the queries have, are watched as well, if most queries have one. Others are equal to them by rounding at most.
_FREQUENT, _MOST, _ROUNDING = 0.01, 0.5, 1e-5
# Probability that, by sampling alone, the mean at calibration of any variable of queries is further from the truth than
# its confidence bounds allow, as with every interval of a release; the same for that of judged replies.
_UNLUCKY = 0.05
_OTHER_VARIABLES = 4  # of the other signals
_MAX_VARIABLES = 2 * len(_PERCENTILES) + _OTHER_VARIABLES  # unless scores are tied

Sample = TypeVar("Sample")  # Observations, or judged replies


@dataclass(frozen=True)
class Rules:
    """When an alarm is raised."""

    smallest_effect: float = MIN_EFFECT  # Cohen's h by which a mean must exceed the bounds of the calibration
    average_run_length: float = AVERAGE_RUN_LENGTH  # distinct queries between false alarms, see `drift.alarm.threshold`
    block: BlockRule = BLOCK  # distinct queries in a block, or `auto` to adapt it to the length of bursts

    @property
    def smallest_block(self) -> int:
        """Distinct queries in the smallest block."""
        return BLOCK if self.block == "auto" else self.block

    @property
    def judged_block(self) -> int:
        """Judged replies to distinct queries in a block."""
        return max(MIN_IN_BLOCK, self.smallest_block // _JUDGED)


DEFAULT_RULES = Rules()


def overlap_thresholds(top_scores: Float32, rows: NDArray[np.int64], percentile: float) -> NDArray[np.float64]:
    """Return θ_j of each bootstrap j, (m,) float64: a percentile of the top-K similarities of its queries.

    `top_scores` are (q, K), `rows` (m, l) positions of queries; the percentile is in 0…100.
    """
    pooled = top_scores[rows].reshape(len(rows), -1)
    return np.percentile(pooled, percentile, axis=1).astype(np.float64)


def share_above(sample: Float32, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of a sample strictly above each threshold, (m,) float64 in 0…1: 1 − ECDF.

    With S_corr this is COE at each θ_j, with S_rand it is ROE. `sample` is (s,) float32, s ≥ 1; `thresholds` is (m,)
    float64.
    """
    below_or_equal = np.searchsorted(np.sort(sample).astype(np.float64), thresholds, side="right")
    return 1.0 - below_or_equal / len(sample)


@dataclass(frozen=True)
class LiveOverlap:
    """COE and ROE of live traffic; each None if there are too few queries or judgements."""

    coe: Interval | None  # COE of documents that were judged relevant
    # COE of the calibration's correct documents against the live θ, an estimate without judgements.
    expected_coe: Interval | None
    roe: Interval | None  # ROE of random documents; also None if the service cannot score any


def live_overlap(
    queries: Observations, judged: Judgements, reference: Reference, drawn: BootstrapRecord
) -> LiveOverlap:
    """Measure COE and ROE of the queries and judgements of a window of traffic.

    They are bootstrapped as the release was: m rows of l queries, the seed, and the percentile that is θ.
    """
    if len(queries) < MIN_IN_WINDOW:
        return LiveOverlap(None, None, None)
    rows = np.random.default_rng(drawn.seed).integers(0, len(queries), size=(drawn.bootstraps, drawn.sample_size))
    thetas = overlap_thresholds(queries.top, rows, drawn.overlap_percentile)
    return LiveOverlap(
        coe=None if len(judged) < MIN_IN_WINDOW else Interval.of_bootstraps(_coe(judged, reference, thetas)),
        expected_coe=Interval.of_bootstraps(share_above(reference.correct, thetas)),
        roe=Interval.of_bootstraps(share_above(queries.random.ravel(), thetas)) if queries.random.size else None,
    )


def _coe(judged: Judgements, reference: Reference, thetas: Float64) -> Float64:
    """Return COE at each θ, (m,) float64."""
    # Users can judge only documents that are shown. Those score higher, so that judgements alone would give too high a
    # COE. Explored results stand for what is not shown, by their weights. Without any, its share and its similarities
    # are taken from the calibration.
    if (judged.weight > 1).any():
        above = np.array([judged.weight[judged.correct > theta].sum() for theta in thetas], dtype=np.float64)
        return above / float(judged.weight.sum())
    shown = float(reference.correct_kept.mean())
    coe = shown * share_above(judged.correct, thetas)
    if shown < 1:
        coe = coe + (1 - shown) * share_above(reference.correct[~reference.correct_kept], thetas)
    return coe


def kolmogorov_smirnov(live: Float32, reference: Float32) -> float:
    """Return the largest distance between the two empirical distribution functions, in 0…1.

    `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    points = np.sort(np.concatenate([live, reference]))  # sorted, looking them up takes a tenth of the time
    return float(np.abs(_ecdf(live, points) - _ecdf(reference, points)).max())


def wasserstein(live: Float32, reference: Float32) -> float:
    """Return the 1-Wasserstein distance, in units of similarity: the area between the two distribution functions.

    `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    points = np.sort(np.concatenate([live, reference]))
    gaps = np.abs(_ecdf(live, points) - _ecdf(reference, points))
    return float((gaps[:-1] * np.diff(points.astype(np.float64))).sum())


def population_stability(live: Float32, reference: Float32) -> float:
    """Return the population stability index Σ (p − q) · ln(p / q) over ten bins of equal share in the reference.

    By convention, 0.1 is a moderate shift and 0.25 a large one. `live` is (n,) and `reference` (m,) float32, n, m ≥ 1.
    """
    edges = np.percentile(reference, np.linspace(0, 100, _BINS + 1)[1:-1]).astype(np.float32)
    p, q = (_shares(sample, edges) for sample in (live, reference))
    return float(((p - q) * np.log(p / q)).sum())


def _ecdf(sample: Float32, at: Float32) -> Float64:
    share: Float64 = np.searchsorted(np.sort(sample), at, side="right") / len(sample)
    return share


def _shares(sample: Float32, edges: Float32) -> Float64:
    counts = np.bincount(np.searchsorted(edges, sample, side="right"), minlength=_BINS)
    share: Float64 = np.maximum(counts / len(sample), _MIN_SHARE)
    return share


def cohens_h(share: Float64, reference: Float64) -> Float64:
    """Return Cohen's h, the effect size of two shares in 0…1, positive if `share` is larger. Shapes broadcast."""
    return 2 * (np.arcsin(np.sqrt(share)) - np.arcsin(np.sqrt(reference)))


def shifted(reference: Float64, effects: Float64 | float) -> Float64:
    """Return the shares that are an effect away from a reference, limited to 0…1.

    `effects` are Cohen's h, negative for a smaller share.
    """
    return np.sin(np.clip(np.arcsin(np.sqrt(reference)) + effects / 2, 0, np.pi / 2)) ** 2


class Bounds(NamedTuple):
    """The range of V means that counts as no drift, both ends (V,) float64 in 0…1."""

    lower: Float64
    upper: Float64

    def contain(self, means: Float64) -> bool:
        """Return whether all means, (V,) float64, are within the bounds."""
        return bool(((means >= self.lower) & (means <= self.upper)).all())

    def widened(self, other: "Bounds") -> "Bounds":
        """Return the smallest bounds that contain both."""
        return Bounds(np.minimum(self.lower, other.lower), np.maximum(self.upper, other.upper))

    def shifted(self, effect: float) -> "Bounds":
        """Return bounds that are wider by an effect, Cohen's h, on either side."""
        return Bounds(shifted(self.lower, -effect), shifted(self.upper, effect))


@dataclass(frozen=True)
class Signal(Generic[Sample]):
    """A signal with V variables."""

    name: str  # name in the metrics
    variables: Callable[[Sample], Float64]  # computes the variables of n observations, (n, V) float64 in 0…1
    means: Float64  # (V,) the means at calibration
    queries: int  # number of calibration queries behind the means
    # Whether it is of judged replies, whose blocks are smaller. Only a lower mean of them is drift: the qrels of a
    # calibration may lack relevant documents, and users may be readier to judge what helps them.
    judged: bool = False

    @property
    def calibrated(self) -> Bounds:
        """Confidence bounds of the true means, from the means at calibration.

        The standard deviation of a mean of q queries is 1/√q in Cohen's h. A signal of judged replies is one variable
        with one bound, of a confidence of its own; those of queries share theirs.
        """
        bounds = 1 if self.judged else 2 * max(_MAX_VARIABLES, len(self.means) + _OTHER_VARIABLES)
        error = float(NormalDist().inv_cdf(1 - _UNLUCKY / bounds) / np.sqrt(self.queries))
        both = Bounds(self.means, self.means).shifted(error)
        return both._replace(upper=np.ones_like(self.means)) if self.judged else both


def theta_of(reference: Reference, percentile: float) -> float:
    """Return θ of all calibration queries together: a percentile, 0…100, of their top-K similarities."""
    return float(np.percentile(reference.top, percentile))


def query_signals(reference: Reference, theta: float) -> list[Signal[Observations]]:
    """Return the signals of queries, without ROE if the calibration had no similarities with random documents.

    Component scores are among the variables of `topk_similarity`, because ranks hide that the similarities changed.

    `theta` is θ of the calibration, see `theta_of`.
    """
    ranks = sorted({0, reference.top.shape[1] - 1})
    watched = np.concatenate([reference.top[:, ranks], reference.component_means], axis=1)
    levels = np.percentile(watched, _PERCENTILES, axis=0).astype(np.float32)
    frequent = _frequent_scores(reference.top[:, 0])
    calibration = calibration_observations(reference)

    def top(queries: Observations) -> Float64:
        scores = np.concatenate([queries.top[:, ranks], queries.components], axis=1)
        below = (scores[:, None] <= levels).reshape(len(queries), -1)
        equal = np.abs(queries.top[:, :1] - frequent) <= _ROUNDING * np.abs(frequent)
        return np.concatenate([below, equal], axis=1).astype(np.float64)

    def roe(queries: Observations) -> Float64:
        above: Float64 = (queries.random > theta).mean(axis=1, keepdims=True, dtype=np.float64)
        return above

    def empty(queries: Observations) -> Float64:
        none: Float64 = (queries.kept == 0)[:, None].astype(np.float64)
        return none

    def dropped(queries: Observations) -> Float64:
        share: Float64 = 1.0 - queries.kept[:, None].astype(np.float64) / queries.top.shape[1]
        return share

    named = {"topk_similarity": top, "roe": roe, "empty_responses": empty, "dropped_share": dropped}
    if not len(reference.random):
        del named["roe"]
    return [
        Signal(name, variables, variables(calibration).mean(axis=0), len(reference))
        for name, variables in named.items()
    ]


def _frequent_scores(scores: Float32) -> Float32:
    """Return the values that many of (q,) float32 scores have; none unless most scores have one of them."""
    values, counts = np.unique(scores, return_counts=True)
    frequent = counts >= max(2, _FREQUENT * len(scores))
    return values[frequent] if counts[frequent].sum() >= _MOST * len(scores) else values[:0]


def quality_signal(reference: Reference) -> Signal[JudgedReplies]:
    """Return the signal of judged replies: the share that hold a relevant result.

    A reply without a result cannot be judged, so the reference is the calibration's share among replies with one.
    """
    shown = reference.correct_kept[reference.kept > 0]
    means = np.array([shown.mean() if len(shown) else 1.0])

    def relevant(replies: JudgedReplies) -> Float64:
        return replies.relevant[:, None].astype(np.float64)

    return Signal("quality", relevant, means, max(1, len(shown)), judged=True)
