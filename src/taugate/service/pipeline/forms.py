"""Writes replies to searches as JSON: the fields of a reply, and the form of the API that was called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import orjson

from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Answer
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.vectors.similarity import shortest_decimal
from taugate.storage.json_values import Json

# Placeholders for values that differ between requests. JSON escapes control characters, so the body has no others.
QUERY_ID, DRIFT = b"\x00", b"\x01"
QUERY_ID_FIELD, DRIFT_FIELD = orjson.Fragment(b'"' + QUERY_ID + b'"'), orjson.Fragment(DRIFT)
Written: TypeAlias = "Json | orjson.Fragment | Sequence[Written] | Mapping[str, Written]"


class ReplyForm(Protocol):
    """How an API writes a reply. Its `repr` is part of the cache key, so it must have all that changes the output."""

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        """Return the JSON object to send for an answer and the documents of its results.

        Two fields are filled in when the reply is sent. QUERY_ID_FIELD and DRIFT_FIELD stand for them; they may be
        placed anywhere, any number of times.
        """
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
