"""Clusters of queries that share documents, and how many independent queries a query set is worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.evidence import EvidenceRecord, Interval

Labels = NDArray[np.int64]
PerQuery = NDArray[np.float64]
Unit = Literal["query", "document"]

# Above it queries are no longer taken one by one: clusters may then widen a confidence interval by √1.1, 5 %.
MAX_DESIGN_EFFECT = 1.1


def documents_in_words(documents: int) -> str:
    """Write so many documents, for people.

    a single cluster may be many, chained by queries that have several answers.
    """
    return "documents that all of them share" if documents == 1 else f"{documents:,} documents"


@dataclass(frozen=True)
class SamplingUnits:
    """Queries, with what counts as one independent draw: a query, or all queries on one document.

    Attributes:
        labels: (q,) cluster of each query.
        design_effect: That of all labelled queries, Σn² / Σn for clusters of n queries (Kish, Survey Sampling, 1965,
            with a correlation of 1). It is the most that clusters can cost. What the losses themselves say of their
            correlation is no safe guide: losses are rare, and those of one document seldom observed.
    """

    labels: Labels
    design_effect: float

    @classmethod
    def from_labels(cls, labels: Labels) -> Self:
        """Take all labelled queries of a kind.

        Args:
            labels: (q,) cluster of each.
        """
        sizes = np.unique(labels, return_counts=True)[1]
        return cls(labels, float(sizes @ sizes) / len(labels))

    @property
    def unit(self) -> Unit:
        """Unit of the evidence: "document" where documents stand for queries, else "query"."""
        return "document" if self.design_effect > MAX_DESIGN_EFFECT else "query"

    @property
    def documents(self) -> int:
        """Number of clusters among these queries."""
        return len(np.unique(self.labels))

    @property
    def count(self) -> int:
        """Number of units among these queries."""
        return len(self) if self.unit == "query" else self.documents

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def words(self) -> str:
        """Number of queries, and of documents where these count, in words."""
        queries = f"{len(self):,} queries"
        return queries if self.unit == "query" else f"{queries} about {documents_in_words(self.documents)}"

    @property
    def record(self) -> EvidenceRecord:
        """Record for the manifest."""
        return EvidenceRecord(unit=self.unit, units=self.count, design_effect=self.design_effect)

    def sizes(self) -> NDArray[np.int64]:
        """Queries of each document, (c,), in the order of their labels."""
        return np.unique(self.labels, return_counts=True)[1].astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Take the queries at `rows`: what counts as one draw stays what it is for all."""
        return type(self)(self.labels[rows], self.design_effect)


def clusters(queries: Sequence[LabelledQuery]) -> Labels:
    """Number the clusters of queries, (q,): 0, 1, … in order of first appearance.

    Queries that share a document are in one cluster, and so are those they share others with in turn. The documents of
    an answerable query are its relevant ones, those of an unanswerable query the ones that it was judged against: a
    question that its document does not answer is as much about that document as one that it does.

    Args:
        queries: q of them, answerable or not.
    """
    about = [tuple(query.relevant) or query.judged for query in queries]
    owners = np.repeat(np.arange(len(queries)), [len(positions) for positions in about])
    positions = np.array([position for each in about for position in each], dtype=np.int64)
    _, documents = np.unique(positions, return_inverse=True)
    nodes = len(queries) + len(positions)  # every query, then every document; those not needed stay alone
    edges = coo_array((np.ones(len(owners)), (owners, len(queries) + documents)), shape=(nodes, nodes))
    components: NDArray[np.int32] = connected_components(edges, directed=False)[1]
    return components[: len(queries)].astype(np.int64)  # scipy numbers components by their first node: a query


def intra_cluster_correlation(per_query: PerQuery, labels: Labels) -> float:
    """Return the ICC of a metric by the one-way analysis of variance, clipped to 0…1.

    (MSB − MSW) / (MSB + (m₀ − 1)·MSW), m₀ = (q − Σm²/q) / (c − 1) for c clusters of m queries (Donner 1986, Int. Stat.
    Rev. 54, 67; Donner and Klar, Design and Analysis of Cluster Randomization Trials in Health Research, 2000). 0
    without a repeated document. 1, the worst, where it cannot be estimated: where all is one cluster, or nothing
    varies, as where every query is a hit; what a cut loses of copies of one query is still lost together.

    Args:
        per_query: (q,) float64.
        labels: (q,) clusters 0, 1, …, all used.
    """
    sizes = np.bincount(labels)
    queries, count = len(labels), len(sizes)
    if count in (1, queries):
        return float(count < queries)
    means = np.bincount(labels, per_query) / sizes
    between = float((sizes * (means - per_query.mean()) ** 2).sum()) / (count - 1)
    within = float(((per_query - means[labels]) ** 2).sum()) / (queries - count)
    m0 = (queries - float(sizes @ sizes) / queries) / (count - 1)
    total = between + (m0 - 1) * within
    return min(1.0, max(0.0, (between - within) / total)) if total > 0 else 1.0


def effective_sample_size(labels: Labels, correlation: float) -> float:
    """Return how many independent queries would tell a mean as well as these: q / deff, from 1 to q.

    deff = 1 + (m̄ − 1)·ICC (Kish, Survey Sampling, 1965), where m̄ = Σm²/q is the size of a query's own cluster, on
    average (Eldridge, Ashby and Kerry 2006, Int. J. Epidemiol. 35, 1292, in terms of the sizes' variation). For
    clusters of one size m̄ is m₀ of the analysis of variance. For others only m̄ gives the variance of a mean over
    queries, Σ m·(1 + (m − 1)·ICC)·σ²/q²; m₀ is smaller and would promise too much.

    Args:
        labels: (q,) clusters 0, 1, …, all used.
        correlation: ICC, in 0…1.
    """
    sizes = np.bincount(labels)
    size = float(sizes @ sizes) / len(labels)
    return max(1.0, len(labels) / (1 + (size - 1) * correlation))


def cluster_bootstrap(per_query: PerQuery, labels: Labels, rng: np.random.Generator, bootstraps: int) -> Interval:
    """Bootstrap the mean over queries with its 95 % interval, drawing whole clusters with replacement.

    A bootstrap's value is a ratio, the sum of its metric over its number of queries, as clusters differ in size.
    Davison and Hinkley, Bootstrap Methods and their Application, 1997, §3.8: clusters are drawn, what is in them is
    not.

    Args:
        per_query: (q,) float64.
        labels: (q,) clusters 0, 1, …, all used.
        rng: Generator.
        bootstraps: How many.
    """
    sizes, sums = np.bincount(labels), np.bincount(labels, per_query)
    ratios = np.empty(bootstraps)
    for bootstrap in range(bootstraps):
        drawn = rng.integers(0, len(sizes), size=len(sizes))
        ratios[bootstrap] = sums[drawn].sum() / sizes[drawn].sum()
    return Interval.of_bootstraps(ratios)
