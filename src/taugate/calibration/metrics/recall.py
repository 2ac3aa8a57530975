"""Recall@100 and Precision@10 of a ranking, by documents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taugate.calibration.metrics.documents import Parents, first_of_document, grades_of
from taugate.calibration.metrics.own_documents import own_passages_of, search_excluding_own
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.top_k import Searchable
from taugate.retrieval.vectors.queries import QueryVectors

RECALL_DEPTH, PRECISION_DEPTH = (
    100,
    10,
)  # of the query generation paper (Table 8) and the query embeddings paper (Table 7)


@dataclass(frozen=True)
class DeepFigures:
    """Means over queries.

    Attributes:
        recall: Share of a query's relevant documents among its first 100 results.
        precision: Share of its first 10 results that are relevant documents; chunks of one document count once.
    """

    recall: float
    precision: float

    @classmethod
    def measure(
        cls, queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: Parents = None
    ) -> "DeepFigures":
        """Search the (q, d) vectors of q ≥ 1 answerable queries in the index of the passages."""
        positions = search_excluding_own(index, own_passages_of(queries), vectors, RECALL_DEPTH).positions
        relevant = grades_of(queries, positions, parents) >= 1
        if parents is not None:
            relevant = first_of_document(parents[positions], relevant)
        return cls(
            recall=float(np.mean(relevant.sum(axis=1) / [len(query.relevant) for query in queries])),
            precision=float(relevant[:, :PRECISION_DEPTH].sum(axis=1).mean() / PRECISION_DEPTH),
        )
