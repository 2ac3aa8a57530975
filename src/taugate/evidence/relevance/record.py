"""The record of the model of relevance: how it was fitted, and whether its probabilities come true.

Reliability of `relevance`: three in ten of the results with relevance 0.3 should be relevant. Results are counted by
document cluster and by tenth of relevance, and every figure is computed from these sums. Intervals come from drawing
whole clusters with replacement (Davison and Hinkley, Bootstrap Methods and their Application, 1997, §3.8), because
results of queries on one document are right or wrong together.

It is measured on results that the qrels judge, of queries on which it was not fitted. If it was fitted with questions
that no document answers, it is measured on a mixture of queries and other such questions.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance.fitting import (
    UNANSWERABLE_SHARE,
    AppliedRelevance,
    EstimatedRelevance,
    kind_shares,
    mixture_weights,
)
from taugate.policy.arrays import Float32, Float64
from taugate.release.evidence import Interval, RelevanceRecord, ReliabilityBin

BINS = 10  # bins of equal width, as in Guo et al.'s experiments with up to 15; a user reads tenths
LIKELY = 0.2  # most of the K results are clearly irrelevant and score below this; a reader weighs the remaining ones
_BOOTSTRAPS = 1000  # their 2.5th percentile is the 25th value

_Fields = dict[str, float | Interval | list[ReliabilityBin] | None]


@dataclass(frozen=True)
class ReliabilitySums:
    """Sums over the results of clusters, or of bootstraps of clusters, by tenth of relevance."""

    results: Float64  # (…, 10) number of results
    predicted: Float64  # (…, 10) sum of their predicted relevance
    relevant: Float64  # (…, 10) number of relevant results
    squares: Float64  # (…,) sum of (predicted − relevant)²

    @classmethod
    def by_cluster(
        cls,
        relevance: Float32,
        relevant: NDArray[np.bool_],
        cluster_ids: NDArray[np.int64],
        labelled: NDArray[np.bool_] | None = None,
        weights: Float64 | None = None,
    ) -> Self:
        """Sum results by cluster.

        `relevance` is (q, K) float32, probabilities; `relevant` is (q, K); `cluster_ids` is (q,) cluster of each query;
        `labelled` is (q, K), the results that count, None for all; `weights` is (q,), how often each result of a query
        counts, None for once.
        """
        counts = np.ones(relevance.shape, dtype=np.bool_) if labelled is None else labelled
        numbers = np.unique(cluster_ids, return_inverse=True)[1]
        clusters = int(numbers.max()) + 1
        owner = np.repeat(numbers, counts.sum(axis=1))
        predicted, true = relevance[counts].astype(np.float64), relevant[counts].astype(np.float64)
        place = owner * BINS + np.minimum((predicted * BINS).astype(int), BINS - 1)
        times = np.repeat(np.ones(len(relevance)) if weights is None else weights, counts.sum(axis=1))

        def total(values: Float64) -> Float64:
            return np.bincount(place, times * values, clusters * BINS).reshape(clusters, BINS).astype(np.float64)

        squares = np.bincount(owner, times * (predicted - true) ** 2, clusters).astype(np.float64)
        return cls(total(np.ones(len(predicted))), total(predicted), total(true), squares)

    def drawn(self, rng: np.random.Generator) -> "ReliabilitySums":
        """Return the sums of 1,000 bootstraps, each a draw of all clusters with replacement."""
        clusters = len(self.squares)
        times = (np.bincount(rng.integers(0, clusters, clusters), minlength=clusters) for _ in range(_BOOTSTRAPS))
        columns = np.column_stack([self.results, self.predicted, self.relevant, self.squares])
        totals = np.array([draws @ columns for draws in times])
        results, predicted, relevant = np.split(totals[:, :-1], 3, axis=1)
        return ReliabilitySums(results, predicted, relevant, totals[:, -1])

    @property
    def total(self) -> "ReliabilitySums":
        """Sums over all clusters."""
        return ReliabilitySums(
            self.results.sum(axis=0), self.predicted.sum(axis=0), self.relevant.sum(axis=0), self.squares.sum(axis=0)
        )

    def brier(self) -> Float64:
        """Return the Brier score, the mean of (predicted − relevant)² over results, (…,)."""
        score: Float64 = self.squares / self.results.sum(axis=-1)
        return score

    def brier_skill(self) -> Float64:
        """Return 1 − Brier score / Brier score of always predicting the share of relevant results.

        It is 0 if that share is 0 or 1.
        """
        base = self.relevant.sum(axis=-1) / self.results.sum(axis=-1)
        blind = base * (1 - base)
        skill: Float64 = 1 - np.divide(self.brier(), blind, out=np.ones_like(base), where=blind > 0)
        return skill

    def gaps(self, min_relevance: float) -> Float64:
        """Return predicted − relevant by tenth from `min_relevance` on, as a share of their results, (…, tenths)."""
        tenths = slice(round(min_relevance * BINS), None)
        results = self.results[..., tenths].sum(axis=-1, keepdims=True)
        gaps: Float64 = (self.predicted - self.relevant)[..., tenths] / np.maximum(results, 1)
        return gaps


def reliability(sums: ReliabilitySums) -> list[ReliabilityBin]:
    """Describe results by non-empty tenth of relevance, with an interval of the share of relevant results."""
    total = sums.total
    return [
        ReliabilityBin(
            lower=number / BINS,
            upper=(number + 1) / BINS,
            results=round(float(total.results[number])),
            relevance=float(total.predicted[number] / total.results[number]),
            relevant=float(total.relevant[number] / total.results[number]),
            interval=_share(sums.results[:, number], sums.relevant[:, number]),
        )
        for number in range(BINS)
        if total.results[number]
    ]


def brier(sums: ReliabilitySums, drawn: ReliabilitySums) -> Interval:
    """Return the Brier score and its 95 % interval, from sums by cluster and their bootstraps."""
    return _percentiles(sums.total.brier(), drawn.brier())


def brier_skill(sums: ReliabilitySums, drawn: ReliabilitySums) -> Interval:
    """Return the Brier skill score and its 95 % interval, from sums by cluster and their bootstraps."""
    return _percentiles(sums.total.brier_skill(), drawn.brier_skill())


def expected_calibration_error(sums: ReliabilitySums, min_relevance: float = 0.0) -> float:
    """Return the ECE, the mean distance between predicted and true relevance (Guo et al., ICML 2017, eq. 3).

    Results of a relevance below `min_relevance` do not count.
    """
    return float(np.abs(sums.total.gaps(min_relevance)).sum())


def error_interval(sums: ReliabilitySums, drawn: ReliabilitySums, min_relevance: float = 0.0) -> Interval:
    """Return the ECE with its 95 % interval.

    Chance alone moves the tenths off the diagonal, so the ECE of a sample is too large and that of a bootstrap even
    more so: its percentiles lie above a true ECE near 0. The lower limit is therefore the ECE less the 97.5th
    percentile of Σ |gap of the bootstrap − gap|, which by the triangle inequality bounds the part due to chance. The
    upper limit is that of the basic bootstrap, 2 · ECE − 2.5th percentile (Davison and Hinkley, §5.2), but not below
    the ECE. In simulations with 30 to 1,200 clusters, calibrated and not, the interval holds the true ECE in .89 to .99
    of the trials. `drawn` are bootstraps of `sums`; results of a relevance below `min_relevance` do not count.
    """
    gaps, of_bootstraps = sums.total.gaps(min_relevance), drawn.gaps(min_relevance)
    ece = float(np.abs(gaps).sum())
    chance = float(np.percentile(np.abs(of_bootstraps - gaps).sum(axis=1), 97.5))
    basic = 2 * ece - float(np.percentile(np.abs(of_bootstraps).sum(axis=1), 2.5))
    return Interval(mean=ece, lower=max(0.0, ece - chance), upper=min(1.0, max(ece, basic)))


def _percentiles(value: np.float64 | Float64, of_bootstraps: Float64) -> Interval:
    lower, upper = np.percentile(of_bootstraps, [2.5, 97.5])
    return Interval(mean=float(value), lower=float(lower), upper=float(upper))


def _share(results: Float64, true: Float64) -> Interval:
    """Return the share of relevant results with Clopper and Pearson's 95 % interval for the effective sample size."""
    # The effective size reproduces the variance between clusters (Korn and Graubard, Survey Methodology 24, 1998). If
    # all or no results are relevant, there is no variance to see, and it is the number of clusters. `results` is (c,)
    # number of results by cluster; `true` is (c,) number of relevant results by cluster.
    n, clusters = float(results.sum()), int((results > 0).sum())
    share = float(true.sum()) / n
    off = true - share * results
    variance = float(off @ off) / n**2 * clusters / max(clusters - 1, 1)
    size = min(n, share * (1 - share) / variance) if variance > 0 else float(clusters)
    hits = share * size
    lower = stats.beta.ppf(0.025, hits, size - hits + 1) if hits > 0 else 0.0
    upper = stats.beta.ppf(0.975, hits + 1, size - hits) if hits < size else 1.0
    return Interval(mean=share, lower=float(lower), upper=float(upper))


def relevance_record(
    estimated: EstimatedRelevance,
    roles: QueryRoles,
    judged: JudgedQueries,
    units: SamplingUnits,
    heldout: NDArray[np.int64] | None,
    seed: int,
) -> RelevanceRecord:
    """Record how the model was fitted, and its reliability on queries on which it was not fitted.

    Bootstraps come from `numpy.random.default_rng([seed, 7])`. Without held-out queries, reliability is measured on the
    calibration queries that did not fit the model, on which the three numbers of the recalibration were fitted.
    """
    return RelevanceRecord.model_validate(
        {
            "features": estimated.relevance.features,
            "fit_queries": len(roles.fit),
            "regularization": estimated.fit.regularization,
            "log_loss": estimated.fit.log_loss,
            "recalibration": estimated.relevance.model.recalibration.kind,
            "part": "calibration" if heldout is None else "heldout",
            **_reliability(estimated, judged, units, roles.not_fitting if heldout is None else heldout, seed),
        }
    )


def kept_relevance_record(
    record: RelevanceRecord,
    applied: AppliedRelevance,
    judged: JudgedQueries,
    units: SamplingUnits,
    part: tuple[Literal["calibration", "heldout"], NDArray[np.int64]],
    seed: int,
) -> RelevanceRecord:
    """Update a model's record with its reliability on other queries or documents; its fit does not change.

    `part` has name and positions of the queries on which reliability is measured.
    """
    name, members = part
    return record.model_copy(update={"part": name, **_reliability(applied, judged, units, members, seed)})


def _reliability(
    applied: AppliedRelevance, judged: JudgedQueries, units: SamplingUnits, unseen: NDArray[np.int64], seed: int
) -> _Fields:
    """Measure a model on queries on which it was not fitted, and return fields of RelevanceRecord."""
    # With questions that no document answers, it is measured on a mixture of them and the queries.
    relevance, relevant, labelled = applied.answerable[unseen], judged.relevant[unseen], judged.labelled[unseen]
    cluster_ids, weights = units.clusters[unseen], None
    mixture: _Fields = dict.fromkeys(("unanswerable_share", "unanswerable", "error_of_answerable"))
    kinds = [] if applied.unanswered is None else applied.unanswered.measuring
    if kinds and (model := applied.of_vectors) is not None:
        alone = ReliabilitySums.by_cluster(relevance, relevant, cluster_ids, labelled)
        drawn = alone.drawn(np.random.default_rng([seed, 7]))
        mixture = {
            "unanswerable_share": UNANSWERABLE_SHARE,
            "unanswerable": sum(map(len, kinds)),
            "error_of_answerable": error_interval(alone, drawn),
        }
        weights = mixture_weights(len(unseen), [len(kind) for kind in kinds], kind_shares(kinds))
        estimates = np.concatenate([model.estimate(kind.vectors, kind.top) for kind in kinds])
        cluster_ids = np.concatenate([cluster_ids, *(kind.clusters for kind in kinds)])
        relevance = np.concatenate([relevance, estimates])
        relevant = np.concatenate([relevant, np.zeros(estimates.shape, dtype=np.bool_)])
        labelled = np.concatenate([labelled, np.ones(estimates.shape, dtype=np.bool_)])
    sums = ReliabilitySums.by_cluster(relevance, relevant, cluster_ids, labelled, weights)
    drawn = sums.drawn(np.random.default_rng([seed, 7]))
    return {
        "queries": len(unseen),
        "documents": len(sums.squares),
        "expected_calibration_error": expected_calibration_error(sums),
        "brier": brier(sums, drawn),
        "brier_skill": brier_skill(sums, drawn),
        "error": error_interval(sums, drawn),
        "error_of_likely": error_interval(sums, drawn, LIKELY) if (relevance[labelled] >= LIKELY).any() else None,
        "bins": reliability(sums),
        **mixture,
    }
