"""What is known of a result before anybody reads it: its score, its neighbours in the list, its background."""

import numpy as np

from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.policy import relative
from taugate.retrieval.vectors.similarity import Float32

FEATURES = (
    "score",
    "relative_score",
    "gap_to_next",  # 0 for the last of the K
    "log_rank",
    "best_score",
    "mean_score",  # of the K
    "score_deviation",  # of the K
    "gap_after_best",
    "query_z",  # in standard deviations of the query's similarity with random documents
    "best_query_z",
    "query_z_behind_best",
    "document_z",  # in standard deviations of the document's similarity with random documents
    "document_z_behind_best",
    "asked_z",  # in standard deviations of the document's similarity with queries
    "asked_z_behind_best",
    "log_length",
)


def features(scores: Float32, query_background: tuple[Float64, Float64], documents: Float32, k: int) -> Float64:
    """Features of each result, (n, w, len(FEATURES)).

    scores: (n, w) float32, best first; query_background: mean and deviation of each query, (n,) each; documents:
    (n, w, 5) float32 rows of `Background.documents`. k: what describes the list is taken from its first k results, so
    that an estimate does not depend on how many results were asked for.
    """
    s = scores.astype(np.float64)
    head = s[:, :k]
    mean, deviation = (each[:, None] for each in query_background)
    background = documents.astype(np.float64)
    query_z = (s - mean) / deviation
    document_z = (s - background[..., 0]) / background[..., 1]
    asked_z = (s - background[..., 2]) / background[..., 3]
    gap = np.zeros_like(s)
    gap[:, : head.shape[1] - 1] = head[:, :-1] - head[:, 1:]
    columns = [
        s,
        relative(scores),
        gap,
        np.log(np.arange(1, s.shape[1] + 1)),
        head[:, :1],
        head.mean(axis=1, keepdims=True),
        head.std(axis=1, keepdims=True),
        gap[:, :1],
        query_z,
        query_z[:, :1],
        query_z[:, :1] - query_z,
        document_z,
        document_z[:, :k].max(axis=1, keepdims=True) - document_z,
        asked_z,
        asked_z[:, :k].max(axis=1, keepdims=True) - asked_z,
        background[..., 4],
    ]
    values = np.empty((*s.shape, len(FEATURES)))
    for place, column in enumerate(columns):
        values[..., place] = column
    return values
