"""What is sent for one query: built once from our own values, not validated again, and kept as bytes."""

from dataclasses import dataclass
from typing import Self

import orjson

from retrieval.retriever import Answer, Reason
from service.engine import Found


@dataclass(frozen=True, slots=True)
class Reply:
    """body: a JSON object that lacks nothing but the id of the answer; the rest is what the metrics count."""

    body: bytes
    kept: int
    considered: int
    reason: Reason | None

    @classmethod
    def of(cls, found: Found, release: str, *, include_text: bool) -> Self:
        """The reply to a query that the release answered."""
        answer = found.answer
        body = orjson.dumps(_fields(found, release, include_text))
        return cls(body, len(found.documents), answer.considered, answer.reason)

    def named(self, query_id: str) -> bytes:
        """The JSON object that is sent; query_id: hexadecimal."""
        return self.body[:-1] + b',"query_id":"' + query_id.encode() + b'"}'

    def pack(self) -> bytes:
        """As it is kept in a cache: the counts on a line, then the body."""
        return orjson.dumps([self.kept, self.considered, self.reason]) + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """What `pack` made."""
        head, _, body = packed.partition(b"\n")
        return cls(body, *orjson.loads(head))

    @classmethod
    def unpack_strange(cls, packed: bytes) -> Self:
        """The same from where others can write as well. Raises ValueError for what is no reply."""
        reply = cls.unpack(packed)
        if not isinstance(orjson.loads(reply.body), dict):
            raise ValueError("no JSON object")
        return reply


def _fields(found: Found, release: str, include_text: bool) -> dict[str, object]:
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
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": answer.best_score,
        "reason": answer.reason,
        "release": release,
    }


def _relevance(answer: Answer) -> list[float] | list[None]:
    """One for each result; null where the release has no model of it."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()
