"""Retriever for LlamaIndex, and the translation of metadata filters."""

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index_instrumentation import get_dispatcher

from taugate_client import LOCAL, Filter, SearchResponse, UnsupportedFilter
from taugate_client.filters import all_of, any_of, compare, negate
from taugate_client.retrieval import SEARCH_FIELDS, Retrieval, metadata, reason_of_empty

_DISPATCHER = get_dispatcher(__name__)


class TaugateEmptyEvent(BaseEvent):
    """A search has returned no results. `reply` has its `reason`, `best_score`, `threshold`, `query_id` and others."""

    reply: dict[str, Any]  # Any: JSON

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name."""
        return "TaugateEmptyEvent"


class TaugateRetriever(BaseRetriever):
    """Return the passages that pass the calibrated threshold, best first.

    An empty list means that no passage passed. A TaugateEmptyEvent and a log line of `taugate_client` say why. If the
    service fails, a TaugateError is raised. A language model only sees the metadata of the document itself.
    """

    def __init__(
        self,
        url: str = LOCAL,
        key: str | None = None,
        k: int | None = None,
        *,
        filters: MetadataFilters | None = None,
        threshold: float | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """Configure the retriever.

        Args:
            url: URL of the service.
            key: API key; TAUGATE_KEY by default.
            k: Number of results to consider; the calibrated K by default.
            filters: Filters on the metadata of documents.
            threshold: Threshold on the score. It can only be stricter than the calibrated one; None and 0 change
                nothing.
            callback_manager: LlamaIndex's callback manager.

        Raises:
            UnsupportedFilter: If Taugate cannot express a filter.
        """
        super().__init__(callback_manager)
        self._retrieval = Retrieval(url, key)
        self._options = (k, None if filters is None else translate(filters), threshold)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._retrieval.search(query_bundle.query_str, *self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await self._retrieval.search_async(query_bundle.query_str, *self._options))


def translate(filters: MetadataFilters | MetadataFilter) -> Filter:
    """Translate metadata filters.

    Raises:
        UnsupportedFilter: If Taugate cannot express a filter.
    """
    if isinstance(filters, MetadataFilter):
        return _condition(filters)
    parts = [translate(part) for part in filters.filters]
    match filters.condition.value if filters.condition else "and":
        case "and":
            return all_of(parts)
        case "or":
            return any_of(parts)
        case "not":  # matches if none of the filters does
            return negate(any_of(parts))
        case other:
            raise UnsupportedFilter(f"filter: Taugate has no condition {other!r}")


def _condition(filter: MetadataFilter) -> Filter:
    """Translate one filter. Equality with a field that holds a list means that the list contains the value."""
    operator = filter.operator.value
    match operator:
        case "nin":
            return compare(filter.key, "not in", filter.value)
        case "any":
            return compare(filter.key, "in", filter.value)
        case "contains":
            return compare(filter.key, "==", filter.value)
        case "all":
            members = filter.value if isinstance(filter.value, list) else [filter.value]
            return all_of([compare(filter.key, "==", member) for member in members])
    return compare(filter.key, operator, filter.value)


def _nodes(reply: SearchResponse) -> list[NodeWithScore]:
    if not reply.results:
        _DISPATCHER.event(TaugateEmptyEvent(reply=reason_of_empty(reply)))
    nodes = []
    for result in reply.results:
        node = TextNode(
            id_=result.id,
            text=result.text or "",
            metadata=metadata(reply, result),
            excluded_llm_metadata_keys=[*SEARCH_FIELDS],
            excluded_embed_metadata_keys=[*SEARCH_FIELDS],
        )
        nodes.append(NodeWithScore(node=node, score=result.score))
    return nodes
