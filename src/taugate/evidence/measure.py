"""The metrics of one part of the queries, with bootstrap intervals.

Accuracy, NDCG, COE, ROE, kept results and empty replies. Queries are searched once; a bootstrap only draws how often
each query counts.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from taugate.drift.signals import overlap_thresholds, share_above
from taugate.evidence.clusters import SamplingUnits, cluster_bootstrap
from taugate.evidence.divisions import DrawSettings, HoldoutSplit, Positions
from taugate.evidence.ranking import ScoredQueries
from taugate.policy.arrays import Float32
from taugate.policy.names import PolicyKind
from taugate.policy.policy import keep
from taugate.release.evidence import Estimate, Interval
from taugate.release.outcome_records import Abstention, MetricsRecord

Rows = NDArray[np.int64]
_ABSTENTION_RATES = np.linspace(0, 1, 11)[:-1]  # those of mteb
_BY_DOCUMENT = 1000  # bootstraps: their 2.5th percentile is the 25th value

PartName = Literal["calibration", "heldout"]


@dataclass(frozen=True)
class Resamples:
    """Random choices for q queries."""

    rows: Rows  # (m, l) query positions, 0…q − 1
    random_documents: NDArray[np.int64]  # (q,) document positions
    units: SamplingUnits
    seed: int  # seed of the bootstraps by document

    @classmethod
    def draw(cls, rng: np.random.Generator, units: SamplingUnits, documents: int, settings: DrawSettings) -> Self:
        """Draw the bootstrap rows first, then a random document for each query (docs/calibration.md).

        N is `documents`.
        """
        queries = len(units.clusters)
        rows = rng.integers(0, queries, size=(settings.bootstraps, settings.sample_size))
        return cls(rows, rng.integers(0, documents, size=queries), units, settings.seed)

    def estimate(self, per_query: NDArray[np.float64]) -> Estimate:
        """Estimate the mean of a (q,) metric, with 95 % intervals by query, and by document if that is the unit."""
        by_query = bootstrapped(per_query, self.rows)
        return Estimate(**by_query.model_dump(), by_document=self.by_document(per_query))

    def by_document(self, per_query: NDArray[np.float64]) -> Interval | None:
        """Bootstrap the mean of a (q,) metric by whole documents; None if queries are the unit.

        Documents are drawn by a separate generator, `numpy.random.default_rng([seed, 6])`.
        """
        if self.units.unit == "query":
            return None
        rng = np.random.default_rng([self.seed, 6])
        return cluster_bootstrap(per_query, np.unique(self.units.clusters, return_inverse=True)[1], rng, _BY_DOCUMENT)


@dataclass(frozen=True)
class QueryPart:
    """The calibration queries or the held-out ones."""

    members: Positions  # positions of the part's q queries among the answerable ones, ascending
    resamples: Resamples


@dataclass(frozen=True)
class DrawnQueries:
    """The random choices that docs/calibration.md lists, all made once before anything is measured."""

    units: SamplingUnits
    parts: dict[PartName, QueryPart]  # "calibration" and, with a holdout, "heldout"

    @classmethod
    def draw(cls, units: SamplingUnits, documents: int, settings: DrawSettings) -> Self:
        """Draw the split, then the resamples of each part, from `numpy.random.default_rng(seed)`.

        N is `documents`.
        """
        rng = np.random.default_rng(settings.seed)
        split = HoldoutSplit.draw(rng, units, settings)
        members_of: dict[PartName, NDArray[np.int64]] = {"calibration": split.calibration, "heldout": split.heldout}
        parts: dict[PartName, QueryPart] = {
            name: QueryPart(members, Resamples.draw(rng, units.take(members), documents, settings))
            for name, members in members_of.items()
            if len(members)
        }
        return cls(units, parts)


def measure(
    queries: ScoredQueries,
    random_scores: Float32,
    draw: Resamples,
    kind: PolicyKind,
    threshold: np.float32 | None,
    overlap_percentile: float,
) -> MetricsRecord:
    """Measure all results of answerable queries, and the results that users get.

    `random_scores` are (q,) float32, S_rand; (0,) to leave out ROE. Without a threshold, everything is kept.
    `overlap_percentile` is that of S_topK that gives θ, in 0…100.
    """
    judged = queries.judged
    thetas = overlap_thresholds(judged.top.scores, draw.rows, overlap_percentile)
    kept = queries.kept(kind, threshold)
    deciding, unanswerable, score_threshold = queries.deciding(kind, threshold)
    return MetricsRecord(
        accuracy=draw.estimate(judged.accuracy()),
        ndcg=draw.estimate(judged.ndcg()),
        accuracy_at_tau=draw.estimate(judged.accuracy(kept)),
        ndcg_at_tau=draw.estimate(judged.ndcg(kept)),
        coe=_overlap(judged.correct, thetas, draw),
        roe=_overlap(random_scores, thetas, draw) if len(random_scores) else None,
        kept_fraction=float(kept.mean()),
        nauc=abstention_nauc(judged.top.scores.max(axis=1), judged.ndcg()),
        abstention=abstention(deciding, judged.accuracy(), unanswerable, score_threshold),
    )


def _overlap(scores: Float32, thetas: NDArray[np.float64], draw: Resamples) -> Estimate:
    """Measure the share of (q,) scores above θ_j over the bootstraps j."""
    # The interval by document is of the share of the θ_j that each score exceeds.
    by_query = Interval.of_bootstraps(share_above(scores, thetas))
    above = np.searchsorted(np.sort(thetas), scores, side="left") / len(thetas)
    return Estimate(**by_query.model_dump(), by_document=draw.by_document(above))


def abstention(
    answerable: Float32, hits: NDArray[np.float64], unanswerable: Float32, threshold: np.float32 | None
) -> Abstention:
    """Measure the share of queries without a result at the threshold, and how well the scores separate the two kinds.

    `answerable` are (q, k) and `unanswerable` (u, k) scores, of which one has to reach the threshold: the decision
    scores of a query's K results, or the one score of the query as a whole. `hits` is (q,) accuracy of uncut answerable
    queries.
    """
    empty = _empty_share(answerable, threshold)
    if not len(unanswerable):
        return Abstention(answerable_empty=empty, unanswerable_empty=None, auroc=None, aurc=None)
    best = np.concatenate([answerable.max(axis=1), unanswerable.max(axis=1)])
    is_answerable = np.arange(len(best)) < len(answerable)
    _, risk = risk_coverage(best, np.concatenate([hits, np.zeros(len(unanswerable))]))
    return Abstention(
        answerable_empty=empty,
        unanswerable_empty=_empty_share(unanswerable, threshold),
        auroc=float(roc_auc_score(is_answerable, best)),
        aurc=float(risk.mean()),
    )


def abstention_nauc(best: Float32, quality: NDArray[np.float64]) -> float | None:
    """Return the normalised area under the abstention curve, None if no order of the queries is better than another.

    The mean quality of the queries that are answered if a share of 0, .1 … .9 with the lowest best scores is not,
    between that of any order (0) and that of the order by quality (1): Gisserot-Boukhlef et al., "Towards Trustworthy
    Reranking: A Simple yet Effective Abstention Mechanism", TMLR 2024, arXiv 2402.12997, §4.2. As mteb computes it,
    queries of one score count with their mean quality. `best` is (q,) best score of each query; `quality` is (q,) such
    as its NDCG.
    """

    def area(scores: NDArray[np.floating[Any]]) -> float:
        _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
        means = np.bincount(group, quality) / sizes
        ordered = np.repeat(means, sizes)
        skipped = [min(round(rate * len(scores)), len(scores) - 1) for rate in _ABSTENTION_RATES]
        return float(np.trapezoid([ordered[count:].mean() for count in skipped], _ABSTENTION_RATES))

    flat = float(quality.mean()) * (_ABSTENTION_RATES[-1] - _ABSTENTION_RATES[0])
    oracle = area(quality)
    return None if math.isclose(oracle, flat) else (area(best) - flat) / (oracle - flat)


def _empty_share(decisions: Float32, threshold: np.float32 | None) -> float:
    return float((~keep(decisions, threshold).any(axis=1)).mean())


def risk_coverage(best: Float32, right: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coverage and risk in descending order of the queries' best scores, (n,) each.

    Coverage is the share of queries answered, risk the share of answered queries without a relevant document. Queries
    of equal score are answered together: all have the risk of the last one. The mean of the risk is the area under the
    curve (Geifman and El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017, §2; El-Yaniv and
    Wiener, JMLR 2010). `best` is (n,) best decision score of each query; `right` is (n,) 1 if the query's results hold
    a relevant document, which is never so for an unanswerable query.
    """
    order = np.argsort(-best, kind="stable")
    answered = np.arange(1, len(best) + 1)
    risk = 1 - np.cumsum(right[order]) / answered
    last = np.searchsorted(-best[order], -best[order], side="right") - 1
    return answered / len(best), risk[last]


def bootstrapped(per_query: NDArray[np.float64], rows: Rows) -> Interval:
    """Return the mean of a (q,) metric over the bootstraps of (m, l) rows, with its 95 % interval."""
    return Interval.of_bootstraps(per_query[rows].mean(axis=1))
