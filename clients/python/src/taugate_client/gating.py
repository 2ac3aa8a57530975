"""Shared part of the gates for all frameworks, which cut the results of the framework's own retriever."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from taugate_client.client import TaugateClient
from taugate_client.gate import Gate
from taugate_client.models import GateResponse

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


class FrameworkGate:
    """Cuts results by a release in this process, or by a service of it. Threads may share it.

    Args:
        releases: The releases directory, or the URL of a service of such a release.
        release: Id of the release in the directory; None for the current one.
        key: API key of the service; None reads TAUGATE_KEY.
    """

    def __init__(self, releases: str, release: str | None = None, key: str | None = None) -> None:
        is_url = releases.startswith(("http://", "https://"))
        self._gate = TaugateClient(releases, key) if is_url else Gate(releases, release)

    def cut(self, results: list[Mapping[str, Any]], query: str | None, k: int | None) -> "GateReply | GateResponse":
        """Return what is kept of a query's results; see Gate.cut and TaugateClient.gate."""
        if isinstance(self._gate, TaugateClient):
            return self._gate.gate(results, query=query, k=k)
        return self._gate.cut(results, k)


def keep(
    gate: FrameworkGate, items: Sequence[Item], scored: Callable[[Item], Scored], query: str | None, k: int | None
) -> tuple[list[tuple[Item, dict[str, object]]], "GateReply | GateResponse"]:
    """Keep the results that pass the threshold, best first.

    Args:
        gate: The gate.
        items: Results of the retriever, best first.
        scored: Returns id and scores of a result; without an id, its place stands for it.
        query: Text of the query, if it is known.
        k: Number of results to consider; None for the calibrated K.

    Returns:
        The kept results, each with the GATE_FIELDS of its metadata, and the reply of the gate.

    Raises:
        InvalidRequest: If a result has no score, or two have the same id; other errors as in TaugateClient.gate.
    """
    parts = [scored(item) for item in items]
    by_id = {part.id or str(place): item for place, (part, item) in enumerate(zip(parts, items, strict=True))}
    sent: list[Mapping[str, Any]] = [
        {"id": part.id or str(place), "score": part.score, "scores": part.scores} for place, part in enumerate(parts)
    ]
    reply = gate.cut(sent, query, k)
    if not reply.results:
        _LOG.info("no result: %s (threshold %s, %s results)", reply.reason, reply.threshold, len(items))
    fields = {"calibrated": reply.calibrated, "why_not": reply.why_not}
    return [
        (by_id[result.id], {"relevance": result.relevance, "rank": result.rank, **fields}) for result in reply.results
    ], reply


def reason_of_empty(reply: "GateReply | GateResponse") -> dict[str, object]:
    """Return why a reply has no results, as the payload of the events for LangChain and LlamaIndex."""
    return {name: getattr(reply, name) for name in ("reason", "threshold", "considered", "calibrated", "why_not")}
