"""LangChain's retriever, and the translation of its structured queries."""

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.structured_query import Comparison, FilterDirective, Operation
from pydantic import PrivateAttr, SecretStr

from taugate_client import LOCAL, Filter, SearchResponse, UnsupportedFilter
from taugate_client.filters import all_of, any_of, compare, negate
from taugate_client.retrieval import Retrieval, metadata, reason_of_empty

# Equality with a field that holds a list means that the list contains the value.
_OPERATORS = {
    "eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=",
    "in": "in", "nin": "not in", "contain": "==",
}  # fmt: skip


class TaugateRetriever(BaseRetriever):
    """Return the passages that pass the calibrated threshold, best first.

    An empty list is an answer: nothing passed. The custom event `taugate_empty` and a log line of `taugate_client` say
    why. A service that cannot answer raises a TaugateError.

    Attributes:
        url: Of the service.
        key: An API key; TAUGATE_KEY by default.
        k: How many results the service considers; the calibrated K by default.
        filter: Taugate's own, or a filter of langchain_core.structured_query.
        threshold: On the score; it can only tighten the calibrated one, and None or 0 leaves it alone. `invoke` takes
            k, filter and threshold as well, for one call.
    """

    url: str = LOCAL
    key: SecretStr | None = None
    k: int | None = None
    filter: dict[str, Any] | FilterDirective | None = None  # Any: JSON
    threshold: float | None = None
    _retrieval: Retrieval = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 (pydantic's signature)
        """Open the client."""
        super().model_post_init(context)
        self._retrieval = Retrieval(self.url, None if self.key is None else self.key.get_secret_value())

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **options: Any,  # noqa: ANN401 (k, filter, threshold, and what LangChain adds)
    ) -> list[Document]:
        reply = self._retrieval.search(query, *self._settings(options))
        if not reply.results:
            config: RunnableConfig = {"callbacks": run_manager.get_child()}
            dispatch_custom_event("taugate_empty", reason_of_empty(reply), config=config)
        return _documents(reply)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **options: Any,  # noqa: ANN401
    ) -> list[Document]:
        reply = await self._retrieval.search_async(query, *self._settings(options))
        if not reply.results:
            config: RunnableConfig = {"callbacks": run_manager.get_child()}
            await adispatch_custom_event("taugate_empty", reason_of_empty(reply), config=config)
        return _documents(reply)

    def _settings(self, options: Mapping[str, Any]) -> tuple[int | None, Filter | None, float | None]:
        """Return k, filter and threshold of one call, each its own where the call names it."""
        chosen = options.get("filter", self.filter)
        translated = translate(chosen) if isinstance(chosen, FilterDirective) else chosen
        return options.get("k", self.k), translated, options.get("threshold", self.threshold)


def translate(directive: FilterDirective) -> Filter:
    """Translate a structured query's filter.

    Raises:
        UnsupportedFilter: For what Taugate has no condition for.
    """
    if isinstance(directive, Comparison):
        name = directive.comparator.value
        return compare(directive.attribute, _OPERATORS.get(name, name), directive.value)
    if not isinstance(directive, Operation):
        raise UnsupportedFilter(f"filter: {type(directive).__name__} is neither a Comparison nor an Operation")
    parts = [translate(argument) for argument in directive.arguments]
    match directive.operator.value:
        case "and":
            return all_of(parts)
        case "or":
            return any_of(parts)
        case "not":
            return negate(all_of(parts))
    raise UnsupportedFilter(f"filter: Taugate has no operator {directive.operator.value!r}")


def _documents(reply: SearchResponse) -> list[Document]:
    return [
        Document(id=result.id, page_content=result.text or "", metadata=metadata(reply, result))
        for result in reply.results
    ]
