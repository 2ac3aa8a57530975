"""Writes replies to searches as JSON: the fields of a reply, and the form of the API that was called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Answer
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.score_parts import PartFields
from taugate.retrieval.vectors.similarity import shortest_decimal

_APPROXIMATE = {"approximate": True}  # for a search within a filter that an engine evaluates
_TRUNCATED = {"truncated": True}  # if the encoder reads only the beginning of the query
_EXPLORED = {"explored": True}  # for a result below the threshold
# Placeholders for values that differ between requests. JSON escapes control characters, so the body has no others.
QUERY_ID, DRIFT = b"\x00", b"\x01"
_CHANGING = {"drift": orjson.Fragment(DRIFT), "query_id": orjson.Fragment(b'"' + QUERY_ID + b'"')}


class ReplyForm(Protocol):
    """How an API writes a reply. Its `repr` is part of the cache key, so it must have all that changes the output."""

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON object to send for a reply with the fields of docs/api.md.

        `drift` and `query_id` are placeholders that are filled in when the reply is sent; they may be placed anywhere,
        any number of times.
        """
        ...


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The form of /search, whose results carry title and text if `include_text` is set."""

    include_text: bool = True

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the reply, without title and text if they were not requested."""
        if self.include_text:
            return reply
        return reply | {"results": [result | {"title": None, "text": None} for result in reply["results"]]}


def write_body(form: ReplyForm, fields: dict[str, Any]) -> bytes:
    """Return `search_fields` in a form, as JSON with placeholders for the values that differ between requests."""
    # Copied to its exact size: orjson's own bytes keep up to fourteen times as much memory.
    return bytes(memoryview(orjson.dumps(form.write(fields | _CHANGING))))


def search_fields(answer: Answer, documents: Sequence[Document], manifest: Manifest) -> dict[str, Any]:
    """Return the fields of a reply to a search, except those that depend on the service: `drift` and `query_id`."""
    certified = (manifest.first_stage if answer.stage == "first" else manifest).certified if answer.calibrated else None
    results = [
        {
            "id": document.id,
            "document_id": document.document_id,
            "rank": rank,
            "score": shortest_decimal(score),
            **first,
            "relevance": _shortest(relevance),
            "below_threshold": below,
            **(_EXPLORED if propensity < 1 else {}),
            **parts,
            "title": document.title,
            "text": document.text,
            "metadata": document.metadata,
        }
        for document, rank, score, first, relevance, below, propensity, parts in zip(
            documents,
            answer.ranks.tolist(),
            answer.scores.tolist(),
            _first_scores(answer),
            _relevance(answer),
            answer.below_threshold.tolist(),
            answer.propensities.tolist(),
            _parts(answer),
            strict=True,
        )
    ]
    return {
        "results": results,
        "threshold": _shortest(answer.threshold),
        "policy": answer.policy,
        "calibrated": answer.calibrated,
        "calibration": manifest.state,
        **({} if answer.not_comparable is None else {"not_comparable": answer.not_comparable}),
        **({} if certified is None else {"certified": certified.model_dump()}),
        **(_TRUNCATED if answer.truncated else {}),
        **(_APPROXIMATE if answer.approximate else {}),
        **({} if answer.stage is None else {"stage": answer.stage}),
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": _shortest(answer.best_score),
        "reason": answer.reason,
        **_refusal(answer),
        "release": manifest.release_id,
    }


def _shortest(value: float | None) -> float | None:
    return None if value is None else shortest_decimal(value)


def _relevance(answer: Answer) -> list[float] | list[None]:
    """Return the probability of relevance of each result, None for each if the release has no relevance model."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()


def _first_scores(answer: Answer) -> list[dict[str, float]]:
    """Return the field with the first stage's score of each result; empty unless a second stage ranked them."""
    if answer.first_scores is None:
        return [{} for _ in answer.scores]
    return [{"first_stage_score": shortest_decimal(score)} for score in answer.first_scores.tolist()]


def _refusal(answer: Answer) -> dict[str, dict[str, float]]:
    """Return the field with the score of the query as a whole; empty if it was compared with nothing."""
    if answer.refusal is None:
        return {}
    return {"refusal": {name: shortest_decimal(value) for name, value in answer.refusal._asdict().items()}}


def _parts(answer: Answer) -> list[PartFields] | list[dict[str, None]]:
    """Return the fields with the parts of each score; empty unless the query asks for them."""
    if answer.parts is None:
        return [dict[str, None]() for _ in answer.scores]
    return [answer.parts.fields(row) for row in range(len(answer.scores))]
