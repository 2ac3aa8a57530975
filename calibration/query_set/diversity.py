"""Of how many topics a query set is: the measures of the benchmark diversity paper (§3.4.2, Table 2).

The paper does not say how it clusters. Here: k-means on the unit vectors, every number of clusters from 2 to 20 (the
paper's best are 19 and 20), the one with the largest silhouette by cosine distance; entropy of the cluster sizes as a
share of its maximum, log(number of clusters), which is how the paper's .9577 and .9765 can be read.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.similarity import Float32

_MOST_TOPICS = 20
# Vectors that are clustered: a seeded sample of them, above that. Keeps 19 runs of k-means below a second or so.
_SAMPLE = 1000
_STARTS = 3

Labels = NDArray[np.int32]


@dataclass(frozen=True)
class Topics:
    """The number of topics with the best silhouette, that silhouette (−1…1), and the entropy of their sizes (0…1)."""

    topics: int
    silhouette: float
    topic_entropy: float


def cosine_distance(vectors: Float32) -> float | None:
    """Mean of 1 − cosine over all pairs of unit vectors (n, d); None below 3, a mean of a single pair or none.

    Exact without the pairs: the similarities of all pairs add up to (‖Σv‖² − Σ‖v‖²) / 2.
    """
    n = len(vectors)
    if n < 3:
        return None
    total: NDArray[np.float64] = vectors.sum(axis=0, dtype=np.float64)
    own = float(np.einsum("nd,nd->", vectors, vectors, dtype=np.float64))
    return 1 - (float(np.square(total).sum()) - own) / (n * (n - 1))


def topics(vectors: Float32, seed: int) -> Topics | None:
    """Topics among unit vectors (n, d); None with fewer than 3 distinct ones, which have no number to choose."""
    if len(vectors) > _SAMPLE:
        vectors = vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), _SAMPLE, replace=False))]
    most = min(_MOST_TOPICS, len(np.unique(vectors, axis=0)) - 1)
    # One thread: with two, the last bits of k-means's centres differ, and arrays this small take ten times longer.
    with threadpool_limits(limits=1):
        found = [_topics(vectors, _k_means(vectors, count, seed)) for count in range(2, most + 1)]
    return max(found, key=lambda each: each.silhouette, default=None)


def _k_means(vectors: Float32, count: int, seed: int) -> Labels:
    labels: Labels = KMeans(count, n_init=_STARTS, random_state=seed % 2**32).fit(vectors).labels_
    return labels


def _topics(vectors: Float32, labels: Labels) -> Topics:
    sizes = np.bincount(labels)
    shares = sizes / len(labels)
    entropy = -float((shares * np.log(shares)).sum()) / float(np.log(len(sizes)))
    return Topics(len(sizes), silhouette(vectors, labels), min(1.0, entropy))


def silhouette(vectors: Float32, labels: NDArray[np.int32]) -> float:
    """Mean silhouette by cosine distance (Rousseeuw 1987) of unit vectors (n, d) with clusters 0, 1, … (n,), all used.

    (b − a) / max(a, b): a is the mean distance to the others of a vector's cluster, b to the next cluster. Cosine
    distance is linear, so the mean distance to a cluster is the distance to its mean: no pairs. One alone scores 0.
    """
    v = vectors.astype(np.float64)
    members = np.eye(int(labels.max()) + 1)[labels]
    sizes = members.sum(axis=0)
    towards = v @ (members.T @ v).T
    rows = np.arange(len(v))
    others = np.maximum(sizes[labels] - 1, 1)
    a = 1 - (towards[rows, labels] - np.square(v).sum(axis=1)) / others
    distances = 1 - towards / sizes
    distances[rows, labels] = np.inf
    b = distances.min(axis=1)
    scale = np.maximum(np.maximum(a, b), np.finfo(np.float64).tiny)
    return float(np.where(sizes[labels] > 1, (b - a) / scale, 0.0).mean())
