"""One query answered by one release, so that the answers of two can be laid beside each other."""

import time
from dataclasses import dataclass, replace

import numpy as np

from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.retriever import Query, Retriever

_NO_THRESHOLD = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Side:
    """Ids of the top-K and of those that are kept, and seconds from text to answer."""

    considered: list[str]
    kept: list[str]
    seconds: float


def answered(query: Query, retriever: Retriever, documents: DocumentStore) -> Side:
    """What a release has for a query. Raises InputError for a filter on a field that none of its documents has."""
    began = time.perf_counter()
    vectors = retriever.vectors([query.text])
    (answer,) = retriever.answer([query], vectors)
    kept = [documents[position].id for position in answer.positions.tolist()]
    seconds = time.perf_counter() - began
    (uncut,) = retriever.answer([replace(query, threshold=_NO_THRESHOLD)], vectors)
    return Side([documents[position].id for position in uncut.positions.tolist()], kept, seconds)


def overlap(one: Side, other: Side) -> float:
    """Share of the longer top-K that is in the other as well, 0…1; two that found nothing agree."""
    longest = max(len(one.considered), len(other.considered))
    return len({*one.considered} & {*other.considered}) / longest if longest else 1.0
