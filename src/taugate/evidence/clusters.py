"""Clusters of queries that were drawn together, and the effective sample size of a query set."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.release.evidence import Drawn, EvidenceRecord, Interval

ClusterIds = NDArray[np.int64]
PerQuery = NDArray[np.float64]
Unit = Literal["query", "document"]

# Above this design effect the unit is the document: clusters may then widen a confidence interval by √1.1, 5 %.
MAX_DESIGN_EFFECT = 1.1
# Share of the labelled queries that count by default. The few queries that the largest documents have beyond it cost
# more evidence than all others give: with .99 or 1 nothing is certified at 1 % on one or two of three large public sets
# and with .95 hardly more than with .98 (docs/thresholds.md, "One document with many queries").
_COUNTED = 0.98
# Share that counts at least if more of them leave nothing to certify. The loss of all queries is then within .05 of the
# certified one even if all others are lost.
_COUNTED_AT_LEAST = 0.95
# With `--count-at-most auto`, nine in ten documents count with all their queries.
_CAP_PERCENTILE = 0.9


def documents_phrase(documents: int) -> str:
    """Write a number of clusters for people; a cluster may hold several documents that share queries."""
    return "documents that all of them share" if documents == 1 else f"{documents:,} documents"


@dataclass(frozen=True)
class SamplingUnits:
    """Queries and their unit of independent sampling: a query, or all queries about one document."""

    clusters: ClusterIds  # (q,) cluster of each query
    # Design effect of all labelled queries, Σn² / Σn for clusters of n queries (Kish, Survey Sampling, 1965, with a
    # correlation of 1), which is the upper limit. The correlation is not estimated from the losses: losses are rare,
    # and two losses on one document are seldom observed.
    design_effect: float
    # How the labels were drawn: "queries" one by one, in which case every query is a cluster, or "documents" with all
    # their queries. None if documents are assumed.
    drawn: Drawn | None = None
    cap: int | None = None  # largest number of queries that a document counts for, None without a limit

    @classmethod
    def from_clusters(cls, clusters: ClusterIds) -> Self:
        """Compute the design effect of all labelled queries of a kind, from the (q,) cluster of each."""
        sizes = np.unique(clusters, return_counts=True)[1]
        return cls(clusters, float(sizes @ sizes) / len(clusters))

    def usual_cap(self) -> int:
        """Return the number of queries that nine in ten documents do not exceed."""
        return int(np.quantile(self.sizes(), _CAP_PERCENTILE, method="inverted_cdf"))

    def capped(self, cap: int | Literal["auto"] | None) -> Self:
        """Limit how many queries a document counts for, so that no unseen document can lose more than the largest ones.

        "auto" is the usual cap. None is the smallest number with which 98 % of the queries count, and no cap if no
        document has more.
        """
        if cap == "auto":
            cap = self.usual_cap()
        elif cap is None:
            cap = self._smallest_cap(_COUNTED)
            cap = cap if cap < self.sizes().max() else None
        return replace(self, cap=cap)

    def smaller_caps(self) -> range:
        """Return the caps below the present one with which 95 % of the queries or more count, the largest first."""
        present = int(self.sizes().max()) if self.cap is None else self.cap
        return range(present - 1, self._smallest_cap(_COUNTED_AT_LEAST) - 1, -1)

    def _smallest_cap(self, share: float) -> int:
        """Return the smallest cap with which a share of the queries counts."""
        caps, sizes = np.arange(1, self.sizes().max() + 1), self.sizes()
        enough = np.minimum(sizes, caps[:, None]).sum(axis=1) >= share * len(self)
        return int(caps[enough.argmax()])

    @property
    def unit(self) -> Unit:
        """Unit of the evidence: "document" if the design effect is above `MAX_DESIGN_EFFECT`, else "query"."""
        return "document" if self.design_effect > MAX_DESIGN_EFFECT else "query"

    @property
    def documents(self) -> int:
        """Number of clusters among these queries."""
        return len(np.unique(self.clusters))

    @property
    def count(self) -> int:
        """Number of units among these queries."""
        return len(self) if self.unit == "query" else self.documents

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def words(self) -> str:
        """Number of queries in words, with the number of documents if these are the unit."""
        queries = f"{len(self):,} queries"
        return queries if self.unit == "query" else f"{queries} about {documents_phrase(self.documents)}"

    @property
    def record(self) -> EvidenceRecord:
        """Record for the manifest."""
        return EvidenceRecord(unit=self.unit, units=self.count, design_effect=self.design_effect, drawn=self.drawn)

    def sizes(self) -> NDArray[np.int64]:
        """Number of queries in each cluster, (c,), in ascending order of the clusters."""
        return np.unique(self.clusters, return_counts=True)[1].astype(np.int64)

    def weights(self) -> PerQuery:
        """Return what each query counts for, (q,): min(n, cap) / n of the n queries of its cluster, 1 without a cap."""
        sizes = self.sizes()[np.unique(self.clusters, return_inverse=True)[1]]
        return np.ones(len(self)) if self.cap is None else np.minimum(sizes, self.cap) / sizes

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Take the queries at `rows`; the unit stays that of all queries."""
        return replace(self, clusters=self.clusters[rows])


def intra_cluster_correlation(per_query: PerQuery, cluster_ids: ClusterIds) -> float:
    """Return the ICC of a metric by the one-way analysis of variance, clipped to 0…1.

    (MSB − MSW) / (MSB + (m₀ − 1)·MSW), m₀ = (q − Σm²/q) / (c − 1) for c clusters of m queries (Donner 1986, Int. Stat.
    Rev. 54, 67; Donner and Klar, Design and Analysis of Cluster Randomization Trials in Health Research, 2000). 0
    without a repeated document. 1, the worst case, if it cannot be estimated because there is a single cluster or the
    metric does not vary (every query is a hit): a cut still loses copies of one query together. `per_query` is (q,)
    float64; `cluster_ids` is (q,) clusters 0, 1, …, all used.
    """
    sizes = np.bincount(cluster_ids)
    queries, count = len(cluster_ids), len(sizes)
    if count in (1, queries):
        return float(count < queries)
    means = np.bincount(cluster_ids, per_query) / sizes
    between = float((sizes * (means - per_query.mean()) ** 2).sum()) / (count - 1)
    within = float(((per_query - means[cluster_ids]) ** 2).sum()) / (queries - count)
    m0 = (queries - float(sizes @ sizes) / queries) / (count - 1)
    total = between + (m0 - 1) * within
    return min(1.0, max(0.0, (between - within) / total)) if total > 0 else 1.0


def effective_sample_size(cluster_ids: ClusterIds, correlation: float) -> float:
    """Return the number of independent queries that would estimate a mean as precisely: q / deff, from 1 to q.

    deff = 1 + (m̄ − 1)·ICC (Kish, Survey Sampling, 1965), with m̄ = Σm²/q, the mean over queries of their cluster's
    size (Eldridge, Ashby and Kerry 2006, Int. J. Epidemiol. 35, 1292, in terms of the sizes' variation). For clusters
    of one size m̄ is m₀ of the analysis of variance. If sizes differ, only m̄ gives the variance of a mean over
    queries, Σ m·(1 + (m − 1)·ICC)·σ²/q²; m₀ is smaller and would promise too much. `cluster_ids` are (q,) clusters 0,
    1, …, all used.
    """
    sizes = np.bincount(cluster_ids)
    size = float(sizes @ sizes) / len(cluster_ids)
    return max(1.0, len(cluster_ids) / (1 + (size - 1) * correlation))


def cluster_bootstrap(
    per_query: PerQuery, cluster_ids: ClusterIds, rng: np.random.Generator, bootstraps: int
) -> Interval:
    """Bootstrap the mean over queries with its 95 % interval, drawing whole clusters with replacement.

    A bootstrap's value is a ratio, the sum of its metric over its number of queries, because clusters differ in size.
    Clusters are drawn, the queries inside them are not (Davison and Hinkley, Bootstrap Methods and their Application,
    1997, §3.8). `per_query` is (q,) float64; `cluster_ids` is (q,) clusters 0, 1, …, all used.
    """
    sizes, sums = np.bincount(cluster_ids), np.bincount(cluster_ids, per_query)
    ratios = np.empty(bootstraps)
    for bootstrap in range(bootstraps):
        drawn = rng.integers(0, len(sizes), size=len(sizes))
        ratios[bootstrap] = sums[drawn].sum() / sizes[drawn].sum()
    return Interval.of_bootstraps(ratios)
