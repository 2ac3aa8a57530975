"""Golden queries: calibration queries with the scores they gave, to check that another machine answers alike."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from taugate.errors import ReleaseError
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import read_bounded

# Between what another processor's order of sums changes (5e-7) and what an encoder with int8 weights changes at least
# (1e-2): docs/benchmarks/encoder.md has the measurements.
TOLERANCE = 1e-4
_MAX_BYTES = 64 << 20  # a thousand times what calibration writes: as many queries as anyone would wait for


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """One calibration query with its answer.

    Attributes:
        text: Of the query.
        relevant: Ids of its relevant documents; of a document in chunks also those of its chunks that are in
            `documents`.
        documents: Ids of the passages of its top-K, best first.
        scores: Their float32 similarities.
    """

    text: str
    relevant: list[str]
    documents: list[str]
    scores: list[float]

    def is_answered_by(self, passages: Iterable[Document]) -> bool:
        """Tell whether one of the passages is relevant, or a chunk of a relevant document.

        Args:
            passages: Any of them.
        """
        relevant = {*self.relevant}
        return any(passage.id in relevant or passage.document_id in relevant for passage in passages)


def write(path: Path, queries: Sequence[GoldenQuery]) -> None:
    """Write golden queries, one JSON object a line.

    Args:
        path: The file.
        queries: In any order, each with as many scores.

    Raises:
        OSError: .
    """
    path.write_bytes(b"".join(orjson.dumps(asdict(query)) + b"\n" for query in queries))


def read(path: Path) -> list[GoldenQuery]:
    """Read what `write` wrote.

    Args:
        path: The file.

    Raises:
        ReleaseError: Where it does not hold golden queries, each with as many scores as the first.
    """
    try:
        queries = [_parse(orjson.loads(line)) for line in read_bounded(path, _MAX_BYTES).splitlines()]
        with np.errstate(over="ignore"):  # infinite then, and refused below
            scores = np.array([query.scores for query in queries], dtype=np.float32)
    except (OSError, ValueError, TypeError) as error:
        raise ReleaseError(f"{path}: does not hold golden queries; calibrate again") from error
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise ReleaseError(f"{path}: does not hold golden queries with scores; calibrate again")
    return queries


def _parse(record: dict[str, Any]) -> GoldenQuery:
    """Check the types of one record, as an encoder takes nothing but texts.

    Raises:
        ValueError: .
        TypeError: .
    """
    query = GoldenQuery(**record)
    ids = (query.relevant, query.documents)
    if not isinstance(query.text, str) or not all(isinstance(each, list) for each in (*ids, query.scores)):
        raise ValueError("not a golden query")
    if not all(isinstance(name, str) for names in ids for name in names):
        raise ValueError("ids that are no texts")
    if not all(type(score) in (int, float) for score in query.scores):
        raise ValueError("scores that are no numbers")
    return query


def search(retriever: Retriever, queries: Sequence[GoldenQuery]) -> TopK:
    """Search golden queries again, each for as many documents as were recorded.

    Args:
        retriever: That is to answer as at calibration.
        queries: n of them, at least one.

    Returns:
        n rows.
    """
    return retriever.index.search(retriever.vectors([query.text for query in queries]), len(queries[0].scores))


def differences(top: TopK, queries: Sequence[GoldenQuery], *, in_engine: bool = False) -> Float32:
    """Return how far each query's scores are from their records, (n,) float32; NaN for a NaN score.

    In the process the same index finds the same documents: it is the largest difference, rank by rank. Ranks and not
    ids are compared: two documents closer than the tolerance may change places on another processor.

    An engine may find other documents of the same vectors: it builds its graph again when it merges parts of a
    collection, and Milvus, asked the same twice, did not always find the same among a million documents. Its scores
    are exact all the same, so most of them are on record. There it is the median distance of a recorded score to the
    nearest one that was found: next to nothing for the same encoder and vectors, and more for any others.

    Args:
        top: What `search` returned for `queries`.
        queries: n of them.
        in_engine: Whether an engine searched.

    Raises:
        ReleaseError: Where there are fewer scores than were recorded.
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
    """Return the difference that the tolerance limits: the largest, or the median where an engine searched.

    A graph that loses its way does so for all results of a query, so some queries of an engine may be far off.

    Args:
        differences: Of every query, (n,).
        in_engine: As in `differences`.
    """
    return float(np.median(differences) if in_engine else differences.max())


def check(retriever: Retriever, queries: Sequence[GoldenQuery], tolerance: float) -> None:
    """Check that golden queries score as at calibration.

    Args:
        retriever: As in `search`.
        queries: With their records.
        tolerance: The largest difference of a score that is no fault.

    Raises:
        ReleaseError: .
    """
    in_engine = retriever.elsewhere is not None
    found = differences(search(retriever, queries), queries, in_engine=in_engine)
    distance = overall(found, in_engine=in_engine)
    if distance <= tolerance:
        return
    scores = "golden queries mostly score" if in_engine else f"golden query {int(found.argmax())} scores"
    raise ReleaseError(
        f"{scores} {distance:.2g} away from the record (tolerance {tolerance:g}): encoder or index do not answer as "
        "they did at calibration; calibrate again on this kind of machine"
    )
