"""Shared part of the gates for all frameworks, which cut the results of the framework's own retriever."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from taugate_client.gate import Gate

if TYPE_CHECKING:
    from taugate.retrieval.gate import GateReply

Item = TypeVar("Item")
SCORES = "scores"  # metadata field with further scores by name
# Fields that are added to the metadata of a result.
GATE_FIELDS = ("relevance", "rank", "calibrated", "why_not")
_LOG = logging.getLogger("taugate_client")  # a documented name


class Scored(NamedTuple):
    """What the gate reads of a result: id, score, and further scores by name."""

    id: str | None
    score: Any  # checked by the gate
    scores: Any


def keep(
    gate: Gate, items: Sequence[Item], scored: Callable[[Item], Scored], k: int | None
) -> tuple[list[tuple[Item, dict[str, object]]], "GateReply"]:
    """Keep the results that pass the threshold, best first.

    Args:
        gate: The gate.
        items: Results of the retriever, best first.
        scored: Returns id and scores of a result; without an id, its place stands for it.
        k: Number of results to consider; None for the calibrated K.

    Returns:
        The kept results, each with the GATE_FIELDS of its metadata, and the reply of the gate.

    Raises:
        InvalidRequest: If a result has no score, or two have the same id.
    """
    parts = [scored(item) for item in items]
    by_id = {part.id or str(place): item for place, (part, item) in enumerate(zip(parts, items, strict=True))}
    sent = [
        {"id": part.id or str(place), "score": part.score, "scores": part.scores} for place, part in enumerate(parts)
    ]
    reply = gate.cut(sent, k)
    if not reply.results:
        _LOG.info("no result: %s (threshold %s, %s results)", reply.reason, reply.threshold, len(items))
    fields = {"calibrated": reply.calibrated, "why_not": reply.why_not}
    return [
        (by_id[result.id], {"relevance": result.relevance, "rank": result.rank, **fields}) for result in reply.results
    ], reply


def reason_of_empty(reply: "GateReply") -> dict[str, object]:
    """Return why a reply has no results, as the payload of the events for LangChain and LlamaIndex."""
    return {name: getattr(reply, name) for name in ("reason", "threshold", "considered", "calibrated", "why_not")}
