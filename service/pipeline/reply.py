"""The result of a search, and the reply that is made of it: JSON written once from our own values, kept as bytes."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import orjson

from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Answer, Reason
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.vectors.similarity import Float32

# Of the object, the heads of its three strings, and what the allocator rounds up (tests/service/cache/test_memory.py).
_OBJECT_BYTES = 256


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query.

    answer: what is kept of the top-K, and why; documents: those that are kept, in the answer's order; vector: the
    query's, (d',) float32; random: (r,) float32, its similarities with some random documents.
    """

    answer: Answer
    documents: list[Document]
    vector: Float32
    random: Float32


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it is cached: its JSON, and what metrics, drift and feedback need of it.

    head: the JSON object without what changes from one request to the next, and without its closing brace; kept,
    considered: how many documents; reason: why none is kept; observed: for drift, float32: how many of the
    calibration's K are kept, the similarities of all K, and those of random documents; empty within a filter; shown:
    for feedback, the positions of the n documents in the reply, int32, and their similarities, float32.
    """

    head: bytes
    kept: int
    considered: int
    reason: Reason | None
    observed: bytes
    shown: bytes

    @classmethod
    def build(cls, result: SearchResult, manifest: Manifest, *, include_text: bool) -> Self:
        """Build the reply; manifest: of the release that was searched; include_text: whether results carry it."""
        answer = result.answer
        # Copied, and so as small as it is: orjson's own bytes keep up to fourteen times as much for themselves.
        head = bytes(memoryview(orjson.dumps(_fields(result, manifest, include_text)))[:-1])
        shown = answer.positions.astype(np.int32).tobytes() + answer.scores.tobytes()
        return cls(head, len(result.documents), answer.considered, answer.reason, _observed(result), shown)

    def to_json(self, query_id: str, drift: bytes) -> bytes:
        """Complete the JSON object; query_id: hexadecimal digits; drift: its field `drift`, as JSON."""
        return b"".join((self.head, b',"drift":', drift, b',"query_id":"', query_id.encode(), b'"}'))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return _OBJECT_BYTES + len(self.head) + len(self.observed) + len(self.shown)


def _observed(result: SearchResult) -> bytes:
    uncut = result.answer.uncut
    if uncut is None:
        return b""
    return np.concatenate([[np.float32(uncut.kept)], uncut.scores, result.random], dtype=np.float32).tobytes()


def _fields(result: SearchResult, manifest: Manifest, include_text: bool) -> dict[str, object]:
    answer = result.answer
    results = [
        {
            "id": document.id,
            "rank": rank,
            "score": score,
            "relevance": relevance,
            "below_threshold": below,
            "title": document.title if include_text else None,
            "text": document.text if include_text else None,
            "metadata": document.metadata,
        }
        for document, rank, score, relevance, below in zip(
            result.documents,
            answer.ranks.tolist(),
            answer.scores.tolist(),
            _relevance(answer),
            answer.below_threshold.tolist(),
            strict=True,
        )
    ]
    return {
        "results": results,
        "threshold": answer.threshold,
        "policy": answer.policy,
        "calibrated": answer.calibrated,
        "calibration": manifest.state,
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": answer.best_score,
        "reason": answer.reason,
        "release": manifest.release_id,
    }


def _relevance(answer: Answer) -> list[float] | list[None]:
    """Probability of relevance for each result; None where the release has no model of it."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()
