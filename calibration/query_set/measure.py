"""Everything that a release says of its query set, measured once on the answerable queries."""

from collections.abc import Sequence

import numpy as np

from taugate.calibration.metrics.clusters import (
    cluster_bootstrap,
    clusters,
    effective_sample_size,
    intra_cluster_correlation,
)
from taugate.calibration.metrics.judged import JudgedQueries
from taugate.calibration.query_set.diversity import cosine_distance, topics
from taugate.calibration.query_set.labels import duplicates, overtaken
from taugate.calibration.query_set.warnings import Signs, query_set_warnings
from taugate.ingestion.dataset.dataset import LabelledQuery
from taugate.retrieval.release.query_set import QuerySetRecord
from taugate.retrieval.vectors.similarity import Float32

_BOOTSTRAPS = 1000


def measure_query_set(
    queries: Sequence[LabelledQuery],
    judged: JudgedQueries,
    random_scores: Float32,
    document_vectors: Float32,
    seed: int,
) -> QuerySetRecord:
    """The record of answerable queries, q ≥ 1 of them, and of `judged`, the same in the same order.

    random_scores: S_rand, float32, of any of them; document_vectors: (N, d) float32 of unit length, the whole corpus;
    seed: of the bootstrap, by a generator of its own, and of the sample and start of the clustering.
    """
    labels = clusters(queries)
    accuracy = judged.accuracy()
    correlation = intra_cluster_correlation(accuracy, labels)
    effective = effective_sample_size(labels, correlation)
    relevant = document_vectors[sorted({position for query in queries for position in query.relevant})]
    distance, whole = cosine_distance(relevant), cosine_distance(document_vectors)
    found = topics(relevant, seed)
    repeated = duplicates(query.text for query in queries)
    signs = Signs(
        queries=len(queries),
        accuracy=float(accuracy.mean()),
        clusters=int(labels.max()) + 1,
        effective=effective,
        spread=distance / whole if distance is not None and whole else None,
        duplicates=repeated,
        overtaken=overtaken(judged, random_scores),
    )
    return QuerySetRecord(
        clusters=signs.clusters,
        effective_sample_size=effective,
        intra_cluster_correlation=correlation if np.ptp(accuracy) else None,
        accuracy_by_cluster=cluster_bootstrap(accuracy, labels, np.random.default_rng([seed, 3]), _BOOTSTRAPS),
        cosine_distance=distance,
        topics=found and found.topics,
        silhouette=found and found.silhouette,
        topic_entropy=found and found.topic_entropy,
        duplicate_queries=repeated,
        warnings=query_set_warnings(signs),
    )
