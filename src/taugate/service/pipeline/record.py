"""What is kept of a search once it was answered, and its reply as JSON, in the form of the API that was called.

The arrays become bytes only in Redis. The functions below are the only ones that convert between the two, and what they
read may have been written by others.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from sys import getsizeof
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.drift.observations import query_key
from taugate.policy.arrays import Float32
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.documents.store import Document
from taugate.retrieval.gate import GateReply
from taugate.retrieval.query import Answer, GateReason, NotComparable, Query, Reason, Stage
from taugate.retrieval.vectors import shortest_decimal
from taugate.storage.files import Json

# Placeholders for values that differ between requests. JSON escapes control characters, so the body has no others.
QUERY_ID, DRIFT = b"\x00", b"\x01"
QUERY_ID_FIELD, DRIFT_FIELD = orjson.Fragment(b'"' + QUERY_ID + b'"'), orjson.Fragment(DRIFT)
Written: TypeAlias = "Json | orjson.Fragment | Sequence[Written] | Mapping[str, Written]"

# Number of random documents that each query is compared with, for ROE. Few, because each costs a dot product.
RANDOM_DOCUMENTS = 4
# A result that was shown: the position of its document, or `id_number` if the release has no documents, its score, its
# rank among the results considered, from 1, the probability that the query shows it, and whether the policy keeps it.
RESULT = np.dtype([("position", "i4"), ("score", "f4"), ("rank", "i4"), ("propensity", "f4"), ("kept", "?")])
Results = NDArray[np.void]

MAX_NUMBER = 1 << 31  # of `id_number`
_HEAD = struct.Struct("<QB")  # of a reply's bytes: the key of its query, and the place of the other two in this list
_STAGES: tuple[Stage | None, ...] = (None, "first", "second")
_CODES = [*product(_STAGES, (None, *NotComparable))]
NOT_COMPARED: Float32 = np.zeros(0, dtype=np.float32)
_ROUNDING = 0.01  # more than that of a score


class ReplyForm(Protocol):
    """How an API writes a reply. Its `repr` is part of the cache key, so it must have all that changes the output."""

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        """Return the JSON object to send for an answer and the documents of its results."""
        # Two fields are filled in when the reply is sent. QUERY_ID_FIELD and DRIFT_FIELD stand for them; they
        # may be placed anywhere, any number of times.
        ...


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The form of /search, whose results carry title and text if `include_text` is set."""

    include_text: bool = True

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        """Return the fields of docs/api.md; without title and text if they were not requested."""
        fields = search_fields(answer, documents, manifest, include_text=self.include_text)
        return {**fields, "drift": DRIFT_FIELD, "query_id": QUERY_ID_FIELD}


def write_body(form: ReplyForm, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> bytes:
    """Return a reply in a form, as JSON with placeholders for the values that differ between requests."""
    # Copied to its exact size: orjson's own bytes keep up to fourteen times as much memory.
    return bytes(memoryview(orjson.dumps(form.write(answer, documents, manifest))))


def search_fields(
    answer: Answer, documents: Sequence[Document], manifest: Manifest, *, include_text: bool = True
) -> dict[str, Json]:
    """Return the fields of a reply to a search, except those that depend on the service: `drift` and `query_id`."""
    certified = (manifest.first_stage if answer.stage == "first" else manifest).certified if answer.calibrated else None
    scores = [*map(float, answer.scores.astype(str))]  # as `shortest_decimal` writes them
    relevance = None if answer.relevance is None else [*map(float, answer.relevance.astype(str))]
    results: list[dict[str, Json]] = []
    for row, document in enumerate(documents):
        result: dict[str, Json] = {
            "id": document.id,
            "document_id": document.document_id,
            "rank": int(answer.ranks[row]),
            "score": scores[row],
        }
        if answer.first_scores is not None:
            result["first_stage_score"] = shortest_decimal(answer.first_scores[row])
        result["relevance"] = relevance and relevance[row]
        result["below_threshold"] = bool(answer.below_threshold[row])
        if answer.propensities[row] < 1:
            result["explored"] = True
        if answer.parts is not None:
            result["parts"] = answer.parts.of(row)
            if answer.parts.matched_words is not None:
                result["matched_words"] = answer.parts.matched_words[row]
        result["title"], result["text"] = (document.title, document.text) if include_text else (None, None)
        result["metadata"] = document.metadata
        results.append(result)
    fields: dict[str, Json] = {
        "results": results,
        "threshold": None if answer.threshold is None else shortest_decimal(answer.threshold),
        "policy": answer.policy,
        "calibrated": answer.calibrated,
        "calibration": manifest.state,
        "not_comparable": answer.not_comparable,
        "certified": None if certified is None else certified.model_dump(),
        "truncated": answer.truncated,
        "approximate": answer.approximate,
        "stage": answer.stage,
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": None if answer.best_score is None else shortest_decimal(answer.best_score),
        "reason": answer.reason,
        "refusal": answer.refusal and dict(zip(("score", "rho"), map(shortest_decimal, answer.refusal), strict=True)),
        "release": manifest.release_id,
    }
    for name in ("not_comparable", "certified", "truncated", "approximate", "stage", "refusal"):
        if not fields[name]:  # these are absent if they say nothing
            del fields[name]
    return fields


@dataclass(frozen=True, slots=True, eq=False)
class SearchRecord:
    """An answered search, as it is cached."""

    body: bytes  # the reply as JSON, see `write_body`
    results: Results  # (n,) RESULT, the documents in the reply
    # (K + r,) float32: those of the calibration's K results before the cut, then those of random documents, or
    # the mean scores of the components of a retriever; empty if they are not comparable
    similarities: Float32
    uncut_kept: int  # how many of the calibration's K results are kept
    considered: int
    explored: int  # number of results that only exploration shows
    reason: Reason | GateReason | None
    stage: Stage | None = None
    not_comparable: NotComparable | None = None
    # ids of the results if the release has no documents, so that `results` cannot lead to them; else None
    ids: tuple[str, ...] | None = None
    passing: bool = False  # whether the next equal query may get a better reply: a second stage was not in time

    @classmethod
    def of(cls, query: Query, answer: Answer, random: Float32, body: bytes) -> Self:
        """Take what is kept of an answer, with (r,) similarities to random documents; arrays are copied to be freed."""
        results = np.empty(len(answer.positions), dtype=RESULT)
        results["position"], results["score"] = answer.positions, answer.scores
        results["rank"], results["propensity"] = answer.ranks, answer.propensities
        results["kept"] = ~answer.below_threshold
        return cls(
            body,
            results,
            NOT_COMPARED if answer.uncut is None else np.concatenate((answer.uncut, random)),
            answer.uncut_kept,
            answer.considered,
            int(np.count_nonzero(answer.propensities < 1)),
            answer.reason,
            answer.stage,
            answer.not_comparable,
            passing=answer.skipped is not None,
        )

    def to_json(self, query_id: str, drift: bytes) -> bytes:
        """Return the reply to send; `drift` is the field of this name, as JSON."""
        return self.body.replace(DRIFT, drift).replace(QUERY_ID, query_id.encode())

    def __sizeof__(self) -> int:
        """Return the bytes of memory used, including the body and the arrays."""
        return object.__sizeof__(self) + getsizeof(self.body) + getsizeof(self.results) + getsizeof(self.similarities)


def gate_record(query: Query, reply: GateReply) -> SearchRecord:
    """Return the record of results that a gate cut; it has no body, because it is not cached."""
    means = NOT_COMPARED if reply.component_means is None else reply.component_means
    record = SearchRecord.of(query, reply, means, b"")
    record.results["position"] = [id_number(kept.id) for kept in reply.results]
    record.results["score"] = [kept.score for kept in reply.results]
    return replace(record, ids=tuple(kept.id for kept in reply.results))


def id_number(document_id: str) -> int:
    """Return a number below 2³¹ for the id of a document without a position, equal in every replica."""
    # A reply of 100 results holds an id that it did not show with a probability of 100/2³¹.
    return int.from_bytes(hashlib.sha256(document_id.encode()).digest()[:4]) >> 1


def random_documents(manifest: ReleaseManifest) -> int:
    """Return the number of random documents that each query is compared with, for ROE."""
    # None if the release has no documents, and one if a second stage has to score it, which takes milliseconds.
    if (searchable := manifest.searchable) is None:
        return 0
    return RANDOM_DOCUMENTS if searchable.second_stage is None else 1


class ShownReply(NamedTuple):
    """What is kept of a reply so that it can be judged."""

    results: Results
    key: int
    stage: Stage | None
    not_comparable: NotComparable | None

    @classmethod
    def of(cls, query: Query, record: SearchRecord) -> Self:
        """Return what is kept of the reply to a query."""
        return cls(record.results, query_key(query.identity), record.stage, record.not_comparable)

    def pack(self) -> bytes:
        """Return the reply as bytes; `read` parses them."""
        return _HEAD.pack(self.key, _CODES.index((self.stage, self.not_comparable))) + self.results.tobytes()

    @classmethod
    def read(cls, stored: bytes, documents: int, max_score: float) -> Self:
        """Parse the bytes of `pack`."""
        # `documents` is the number of documents of the release, MAX_NUMBER if it has none.
        try:
            key, code = _HEAD.unpack_from(stored)
            shown = np.frombuffer(stored[_HEAD.size :], dtype=RESULT)
            reply = cls(shown, key, *_CODES[code])
        except (struct.error, IndexError) as error:
            raise ValueError("not a reply") from error
        positions, shares = shown["position"], shown["propensity"]
        valid = ((positions >= 0) & (positions < documents)).all() and len(np.unique(positions)) == len(positions)
        valid = valid and ((shares > 0) & (shares <= 1)).all() and (shown["rank"] > 0).all()
        if not valid or not (np.abs(shown["score"]) <= max_score + _ROUNDING).all():  # false for NaN as well
            raise ValueError("no documents that a reply could show")
        return reply
