"""Searches golden queries again, to check that another machine returns the same scores."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.golden import GoldenQuery
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query

if TYPE_CHECKING:  # loads FAISS
    from taugate.retrieval.retriever import Retriever


def as_query(golden: GoldenQuery) -> Query:
    """Return the query that searches for as many passages as recorded."""
    own = None if golden.vector is None else np.array(golden.vector, dtype=np.float32).tobytes()
    return Query(golden.text, len(golden.scores), vector=own)


def is_answered(golden: GoldenQuery, passages: Iterable[Document]) -> bool:
    """Return whether one of the passages is relevant or a chunk of a relevant document."""
    relevant = {*golden.relevant}
    return any(passage.id in relevant or passage.document_id in relevant for passage in passages)


def search(retriever: "Retriever", queries: Sequence[GoldenQuery]) -> TopK:
    """Search n ≥ 1 golden queries again, each for as many documents as recorded; returns n rows."""
    read, vectors = retriever.read([as_query(query) for query in queries])
    return retriever.index.search(retriever.with_words([query.text for query in read], vectors), len(queries[0].scores))


def differences(top: TopK, queries: Sequence[GoldenQuery], *, in_engine: bool = False) -> Float32:
    """Return how far each query's scores are from the recorded ones, (n,) float32; NaN for a NaN score.

    An index in the process finds the same documents, so this is the largest difference rank by rank. Ranks are compared
    instead of ids because documents closer than the tolerance may swap places on another processor.

    An engine may find other documents: it rebuilds its graph when it merges parts of a collection, and two equal
    searches of Milvus did not always agree among a million documents. Its scores are still exact, so most of them were
    recorded. With an engine this is the median distance of a recorded score to the nearest returned score: almost zero
    for the same encoder and vectors, and larger for any others.

    Args:
        top: Result of `search` for `queries`.
    """
    recorded = np.array([query.scores for query in queries], dtype=np.float32)
    if top.scores.shape != recorded.shape:
        raise ReleaseError(f"golden queries have {recorded.shape[1]} scores, the index has fewer documents")
    if in_engine:
        nearest = np.abs(recorded[:, :, None] - top.scores[:, None, :]).min(axis=2)
        typical: Float32 = np.median(nearest, axis=1).astype(np.float32)
        return typical
    furthest: Float32 = np.abs(top.scores - recorded).max(axis=1)
    return furthest


def overall(differences: Float32, *, in_engine: bool = False) -> float:
    """Return the difference that the tolerance limits: the largest of (n,) differences, or the median with an engine.

    If a graph search of an engine goes astray, all results of that query differ, so single queries may be far off.
    """
    return float(np.median(differences) if in_engine else differences.max())


def check(retriever: "Retriever", queries: Sequence[GoldenQuery], tolerance: float) -> None:
    """Check that golden queries score as at calibration; `tolerance`: largest allowed difference of a score."""
    in_engine = retriever.remote_passages is not None
    by_query = differences(search(retriever, queries), queries, in_engine=in_engine)
    distance = overall(by_query, in_engine=in_engine)
    if distance <= tolerance:
        return
    scores = "golden queries mostly score" if in_engine else f"golden query {int(by_query.argmax())} scores"
    raise ReleaseError(
        f"{scores} {distance:.2g} away from the record (tolerance {tolerance:g}): encoder or index differ from "
        "those of the calibration; calibrate again on this kind of machine"
    )
