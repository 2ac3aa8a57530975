"""How many independent queries a query set is worth: queries on one document are hit and missed together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from calibration.data.dataset import LabelledQuery
from retrieval.release.interval import Interval

Labels = NDArray[np.int64]
PerQuery = NDArray[np.float64]


def clusters(queries: Sequence[LabelledQuery]) -> Labels:
    """Cluster of each answerable query, (q,): 0, 1, … in order of first appearance.

    Queries that share a relevant document are in one cluster, and so are those they share others with in turn.
    """
    owners = np.repeat(np.arange(len(queries)), [len(query.relevant) for query in queries])
    relevant = np.array([position for query in queries for position in query.relevant], dtype=np.int64)
    _, documents = np.unique(relevant, return_inverse=True)
    nodes = len(queries) + len(relevant)  # every query, then every document; those not needed stay alone
    edges = coo_array((np.ones(len(owners)), (owners, len(queries) + documents)), shape=(nodes, nodes))
    components: NDArray[np.int32] = connected_components(edges, directed=False)[1]
    return components[: len(queries)].astype(np.int64)  # scipy numbers components by their first node: a query


def intra_cluster_correlation(per_query: PerQuery, labels: Labels) -> float:
    """ICC of a metric, (q,), by the one-way analysis of variance, clipped to 0…1.

    (MSB − MSW) / (MSB + (m₀ − 1)·MSW), m₀ = (q − Σm²/q) / (c − 1) for c clusters of m queries (Donner 1986, Int. Stat.
    Rev. 54, 67; Donner and Klar, Design and Analysis of Cluster Randomization Trials in Health Research, 2000).
    0 without a repeated document. 1, the worst, where it cannot be estimated: where all is one cluster, or nothing
    varies, as where every query is a hit; what a cut loses of copies of one query is still lost together.
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
    """Independent queries whose mean is known as well as that of these: q / deff, from 1 to q.

    deff = 1 + (m̄ − 1)·ICC (Kish, Survey Sampling, 1965), where m̄ = Σm²/q is the size of a query's own cluster, on
    average (Eldridge, Ashby and Kerry 2006, Int. J. Epidemiol. 35, 1292, in terms of the sizes' variation). For
    clusters of one size m̄ is m₀ of the analysis of variance. For others only m̄ gives the variance of a mean over
    queries, Σ m·(1 + (m − 1)·ICC)·σ²/q²; m₀ is smaller and would promise too much.
    """
    sizes = np.bincount(labels)
    size = float(sizes @ sizes) / len(labels)
    return max(1.0, len(labels) / (1 + (size - 1) * correlation))


def design_effect(losses: PerQuery, labels: Labels, confidence: float) -> float:
    """By how much clusters widen the one-sided confidence limit of the mean of `losses`, (q,), as a variance.

    Kish's deff from the losses' own correlation, times (t_{c−1} / t_{q−1})² for c clusters: few of them do not say well
    how they vary (Korn and Graubard, Survey Methodology 24, 1998).
    """
    _, labels = np.unique(labels, return_inverse=True)
    queries, count = len(labels), int(labels.max()) + 1
    effect = queries / effective_sample_size(labels, intra_cluster_correlation(losses, labels))
    if count in (1, queries):
        return effect
    return effect * float(stats.t.ppf(confidence, count - 1) / stats.t.ppf(confidence, queries - 1)) ** 2


def cluster_bootstrap(per_query: PerQuery, labels: Labels, rng: np.random.Generator, bootstraps: int) -> Interval:
    """Mean over queries with a 95 % interval that knows of the clusters: whole ones are drawn, with replacement.

    A bootstrap's value is a ratio, the sum of its metric over its number of queries, as clusters differ in size.
    Davison and Hinkley, Bootstrap Methods and their Application, 1997, §3.8: clusters are drawn, what is in them is
    not. per_query, labels: (q,).
    """
    sizes, sums = np.bincount(labels), np.bincount(labels, per_query)
    ratios = np.empty(bootstraps)
    for bootstrap in range(bootstraps):
        drawn = rng.integers(0, len(sizes), size=len(sizes))
        ratios[bootstrap] = sums[drawn].sum() / sizes[drawn].sum()
    return Interval.of_bootstraps(ratios)
