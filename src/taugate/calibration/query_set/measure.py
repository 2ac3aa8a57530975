"""Measures the independence, the diversity and the labels of a query set, for the release."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from joblib.externals.loky.backend import context
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.query_set.warnings import QuerySetSigns, query_set_warnings
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import cluster_bootstrap, effective_sample_size, intra_cluster_correlation
from taugate.evidence.ranking import JudgedQueries, Parents
from taugate.policy.arrays import CorpusVectors, Float32, blocks
from taugate.release.records import QuerySetRecord

# In standard deviations of S_rand, so that encoders with high and with low similarities are comparable.
MARGIN = 3.0
_MAX_TOPICS = 20
# Vectors to cluster, or a seeded sample of so many. Keeps 19 runs of k-means below about a second.
_SAMPLE = 1000
_STARTS = 3
TopicIds = NDArray[np.int32]
_BOOTSTRAPS = 1000


def measure_query_set(
    queries: Sequence[LabelledQuery],
    judged: JudgedQueries,
    random_scores: Float32,
    document_vectors: CorpusVectors,
    seed: int,
    parents: Parents = None,
) -> QuerySetRecord:
    """Measure the answerable queries, q ≥ 1.

    A document counts once, by its first chunk: chunks of one document are near each other, and would make relevant
    documents look closer together, or a corpus more varied, than they are.

    Args:
        judged: The same queries in the same order, with their results.
        random_scores: S_rand, float32, of any of the queries.
        document_vectors: (N, d) float32 of unit length, the complete corpus.
        seed: Seed of the bootstrap, by a separate generator, and of the sample and start of the clustering.
    """
    cluster_ids = clusters(queries)
    accuracy = judged.accuracy()
    correlation = intra_cluster_correlation(accuracy, cluster_ids)
    effective = effective_sample_size(cluster_ids, correlation)
    relevant = document_vectors[np.array(sorted({position for query in queries for position in query.relevant}))]
    distance, corpus_distance = cosine_distance(relevant), _distance_of(_first_passages(document_vectors, parents))
    topics = topic_clusters(relevant, seed)
    repeated = duplicates(query.text for query in queries)
    signs = QuerySetSigns(
        queries=len(queries),
        accuracy=float(accuracy.mean()),
        clusters=int(cluster_ids.max()) + 1,
        effective=effective,
        relative_distance=distance / corpus_distance if distance is not None and corpus_distance else None,
        duplicates=repeated,
        overtaken=overtaken(judged, random_scores),
    )
    return QuerySetRecord(
        clusters=signs.clusters,
        effective_sample_size=effective,
        intra_cluster_correlation=correlation if np.ptp(accuracy) else None,
        accuracy_by_cluster=cluster_bootstrap(accuracy, cluster_ids, np.random.default_rng([seed, 3]), _BOOTSTRAPS),
        cosine_distance=distance,
        topics=topics and topics.topics,
        silhouette=topics and topics.silhouette,
        topic_entropy=topics and topics.topic_entropy,
        duplicate_queries=repeated,
        warnings=query_set_warnings(signs),
    )


def duplicates(texts: Iterable[str]) -> int:
    """Count the texts that repeat an earlier one, ignoring case and white space."""
    normal = [" ".join(text.casefold().split()) for text in texts]
    return len(normal) - len(set(normal))


def overtaken(judged: JudgedQueries, random_scores: Float32) -> int:
    """Count the queries whose best unlabelled document beats the best labelled one by more than MARGIN.

    A document that answers a query about as well as the labelled one has a similar score. If one is this much nearer to
    the query, the label is wrong or missing, or the encoder does not suit these texts.

    Args:
        random_scores: S_rand, float32, at least one similarity; MARGIN is in standard deviations of these.
    """
    unlabelled = np.where(judged.grades == 0, judged.top.scores, -np.inf).max(axis=1)
    margin = MARGIN * float(random_scores.std(dtype=np.float64))
    return int((unlabelled - judged.correct.astype(np.float64) > margin).sum())


def cosine_distance(vectors: Float32) -> float | None:
    """Return the mean of 1 − cosine over all pairs of vectors; None for fewer than 3 vectors.

    It is exact without enumerating pairs: the similarities of all pairs add up to (‖Σv‖² − Σ‖v‖²) / 2.

    Args:
        vectors: (n, d) float32 of unit length.
    """
    return _distance_of([vectors])


def _distance_of(parts: Iterable[Float32]) -> float | None:
    """Return the `cosine_distance` of vectors in parts, (m, d) each."""
    n, total, squares = 0, np.zeros(1), 0.0
    for part in parts:
        n += len(part)
        total = total + part.sum(axis=0, dtype=np.float64)
        squares += float(np.einsum("nd,nd->", part, part, dtype=np.float64))
    return None if n < 3 else 1 - (float(np.square(total).sum()) - squares) / (n * (n - 1))


def _first_passages(vectors: CorpusVectors, parents: Parents) -> Iterator[Float32]:
    """Yield the vectors of the first passage of every document, in blocks."""
    for first, block in blocks(vectors):
        if parents is None:
            yield block
        else:
            positions = np.arange(first, first + len(block))
            yield block[parents[positions] == positions]


@dataclass(frozen=True)
class TopicClusters:
    """The clustering of documents with the best silhouette."""

    topics: int
    silhouette: float  # mean silhouette, −1…1
    topic_entropy: float  # normalised entropy of the cluster sizes, 0…1


def topic_clusters(vectors: Float32, seed: int) -> TopicClusters | None:
    """Cluster vectors by k-means, with the number of clusters that has the best silhouette.

    None for fewer than 3 distinct vectors, because there is no number to choose.

    Args:
        vectors: (n, d) float32 of unit length.
        seed: Seed of the sample and of k-means.
    """
    if len(vectors) > _SAMPLE:
        vectors = vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), _SAMPLE, replace=False))]
    max_topics = min(_MAX_TOPICS, len(np.unique(vectors, axis=0)) - 1)
    # One thread: with two, the last bits of k-means's centres differ, and arrays this small take ten times longer.
    with threadpool_limits(limits=1):
        clusterings = [_topics(vectors, _k_means(vectors, count, seed)) for count in range(2, max_topics + 1)]
    return max(clusterings, key=lambda clustering: clustering.silhouette, default=None)


def _k_means(vectors: Float32, count: int, seed: int) -> TopicIds:
    context._count_physical_cores()  # if it cannot, only the first call warns, with a traceback, in scikit-learn
    labels: TopicIds = KMeans(count, n_init=_STARTS, random_state=seed % 2**32).fit(vectors).labels_
    return labels


def _topics(vectors: Float32, labels: TopicIds) -> TopicClusters:
    sizes = np.bincount(labels)
    shares = sizes / len(labels)
    entropy = -float((shares * np.log(shares)).sum()) / float(np.log(len(sizes)))
    return TopicClusters(len(sizes), silhouette(vectors, labels), min(1.0, entropy))


def silhouette(vectors: Float32, labels: NDArray[np.int32]) -> float:
    """Return the mean silhouette by cosine distance (Rousseeuw 1987).

    (b − a) / max(a, b): a is the mean distance to the others of a vector's cluster, b to the next cluster. Cosine
    distance is linear, so the mean distance to a cluster is the distance to its mean. A cluster of one scores 0.

    Args:
        vectors: (n, d) float32 of unit length.
        labels: (n,) int32 clusters 0, 1, …, all used.
    """
    v = vectors.astype(np.float64)
    members = np.eye(int(labels.max()) + 1)[labels]
    sizes = members.sum(axis=0)
    towards = v @ (members.T @ v).T
    rows = np.arange(len(v))
    other_members = np.maximum(sizes[labels] - 1, 1)
    a = 1 - (towards[rows, labels] - np.square(v).sum(axis=1)) / other_members
    distances = 1 - towards / sizes
    distances[rows, labels] = np.inf
    b = distances.min(axis=1)
    scale = np.maximum(np.maximum(a, b), np.finfo(np.float64).tiny)
    return float(np.where(sizes[labels] > 1, (b - a) / scale, 0.0).mean())
