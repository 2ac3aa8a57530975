"""What is sent for one query: built once from our own values, not validated again, and kept as bytes."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import orjson

from taugate.retrieval.query import Answer, Reason
from taugate.retrieval.release.manifest import Manifest
from taugate.service.pipeline.engine import Found

# Of the object, the heads of its three strings, and what the allocator rounds up (tests/service/cache/test_memory.py).
_OBJECT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Reply:
    """begun: a JSON object that lacks what is not to be cached, and its brace; the rest is what the metrics count.

    observed: what drift is watched by, float32: how many of the calibration's K are kept, the similarities of all K,
    and those of random documents; empty within a filter. shown: for judgements, the positions of the n documents in the
    reply, int32, and their similarities, float32.
    """

    begun: bytes
    kept: int
    considered: int
    reason: Reason | None
    observed: bytes
    shown: bytes

    @classmethod
    def of(cls, found: Found, manifest: Manifest, *, include_text: bool) -> Self:
        """The reply to a query that the release with this manifest answered."""
        answer = found.answer
        # Copied, and so as small as it is: orjson's own bytes keep up to fourteen times as much for themselves.
        begun = bytes(memoryview(orjson.dumps(_fields(found, manifest, include_text)))[:-1])
        shown = answer.positions.astype(np.int32).tobytes() + answer.scores.tobytes()
        return cls(begun, len(found.documents), answer.considered, answer.reason, _observed(found), shown)

    def named(self, query_id: str, drift: bytes) -> bytes:
        """The JSON object that is sent; query_id: hexadecimal; drift: what is known of it now, as JSON."""
        return b"".join((self.begun, b',"drift":', drift, b',"query_id":"', query_id.encode(), b'"}'))

    @property
    def nbytes(self) -> int:
        """What it takes of memory."""
        return _OBJECT_BYTES + len(self.begun) + len(self.observed) + len(self.shown)


def _observed(found: Found) -> bytes:
    uncut = found.answer.uncut
    if uncut is None:
        return b""
    return np.concatenate([[np.float32(uncut.kept)], uncut.scores, found.random], dtype=np.float32).tobytes()


def _fields(found: Found, manifest: Manifest, include_text: bool) -> dict[str, object]:
    answer = found.answer
    results = [
        {
            "id": document.id,
            "rank": rank,
            "score": score,
            "relevance": relevance,
            "title": document.title if include_text else None,
            "text": document.text if include_text else None,
            "metadata": document.metadata,
        }
        for document, rank, score, relevance in zip(
            found.documents, answer.ranks.tolist(), answer.scores.tolist(), _relevance(answer), strict=True
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
    """One for each result; null where the release has no model of it."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()
