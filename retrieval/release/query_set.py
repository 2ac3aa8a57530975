"""What a manifest says of the queries that a release was calibrated on: how many they are worth, of how many topics."""

from taugate.retrieval.release.interval import Interval, Record


class QuerySetRecord(Record):
    """The answerable queries of a data set.

    clusters: of queries that share relevant documents; effective_sample_size: independent queries they are worth, by
    the intra_cluster_correlation (0…1) of accuracy, None where that never varies (then the worst, 1, is reckoned with);
    accuracy_by_cluster: accuracy with the interval that follows;
    cosine_distance, topics, silhouette, topic_entropy: diversity of the distinct relevant documents, None where there
    are too few; duplicate_queries: those whose text occurred before; warnings: sentences for people.
    """

    clusters: int
    effective_sample_size: float
    intra_cluster_correlation: float | None
    accuracy_by_cluster: Interval
    cosine_distance: float | None
    topics: int | None
    silhouette: float | None
    topic_entropy: float | None
    duplicate_queries: int
    warnings: list[str]
