"""What is sent for one query: built once from our own values, not validated again, and kept as bytes."""

from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
import orjson

from retrieval.release.manifest import Manifest
from retrieval.retriever import Answer, Reason
from service.engine import Found


@dataclass(frozen=True, slots=True)
class Reply:
    """body: a JSON object that lacks what is not to be cached; the rest is what the metrics count.

    observed: what drift is watched by, float32: how many of the calibration's K are kept, the similarities of all K,
    and those of random documents; empty within a filter. shown: a JSON object of ids with their similarities, for
    judgements.
    """

    body: bytes
    kept: int
    considered: int
    reason: Reason | None
    observed: bytes
    shown: bytes

    @classmethod
    def of(cls, found: Found, manifest: Manifest, *, include_text: bool) -> Self:
        """The reply to a query that the release with this manifest answered."""
        answer = found.answer
        body = orjson.dumps(_fields(found, manifest, include_text))
        shown = orjson.dumps(
            {document.id: score for document, score in zip(found.documents, answer.scores.tolist(), strict=True)}
        )
        return cls(body, len(found.documents), answer.considered, answer.reason, _observed(found), shown)

    def named(self, query_id: str, drift: bytes) -> bytes:
        """The JSON object that is sent; query_id: hexadecimal; drift: what is known of it now, as JSON."""
        return b"".join((self.body[:-1], b',"drift":', drift, b',"query_id":"', query_id.encode(), b'"}'))

    def pack(self) -> bytes:
        """As it is kept in a cache: the counts on a line, then what has which length, and the body."""
        head = [self.kept, self.considered, self.reason, len(self.observed), len(self.shown)]
        return b"".join((orjson.dumps(head), b"\n", self.observed, self.shown, self.body))

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """What `pack` made."""
        observed = packed.index(b"\n") + 1
        kept, considered, reason, observed_bytes, shown_bytes = orjson.loads(packed[:observed])
        shown = observed + observed_bytes
        body = shown + shown_bytes
        return cls(packed[body:], kept, considered, reason, packed[observed:shown], packed[shown:body])

    @classmethod
    def unpack_strange(cls, packed: bytes) -> Self:
        """The same from where others can write as well. Raises ValueError for what is no reply."""
        try:
            reply = cls.unpack(packed)
        except TypeError as error:  # lengths that are none
            raise ValueError("no reply") from error
        if reply.pack() != packed or not _counted(reply):
            raise ValueError("no counts of results")
        # Of several fields at least, and nothing behind them: the id of the answer is put before the last brace.
        if not orjson.loads(reply.body) or not (reply.body.startswith(b"{") and reply.body.endswith(b"}")):
            raise ValueError("no JSON object")
        similarities_of(reply.shown)
        if not np.isfinite(np.frombuffer(reply.observed, dtype=np.float32)).all():
            raise ValueError("no similarities")
        return reply


def _counted(reply: Reply) -> bool:
    """Whether the metrics can count it."""
    counts = type(reply.kept) is int and type(reply.considered) is int and 0 <= reply.kept <= reply.considered
    return counts and (reply.reason is None or reply.reason in get_args(Reason))


def similarities_of(shown: bytes) -> dict[str, float]:
    """Ids of documents with their similarities. Raises ValueError for what is nothing of the kind."""
    similarities = orjson.loads(shown)
    if not isinstance(similarities, dict) or not all(isinstance(each, float) for each in similarities.values()):
        raise ValueError("no similarities of documents")
    return similarities


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
