"""Retriever for LangChain, and the translation of structured queries."""

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

# Equality with a field that holds a list means that the list contains the value, so it also translates "contain".
_OPERATORS = {
    "eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=",
    "in": "in", "nin": "not in", "contain": "==",
}  # fmt: skip


class TaugateRetriever(BaseRetriever):
    """Return the passages that pass the calibrated threshold, best first.

    An empty list means that no passage passed. The custom event `taugate_empty` and a log line of `taugate_client` say
    why. If the service fails, a TaugateError is raised.

    `invoke` also takes k, filter and threshold, for one call.

    Attributes:
        url: URL of the service.
        key: API key; TAUGATE_KEY by default.
        k: Number of results to consider; the calibrated K by default.
        filter: A Taugate filter, or a filter of langchain_core.structured_query.
        threshold: Threshold on the score. It can only be stricter than the calibrated one; None and 0 change nothing.
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
        """Return k, filter and threshold of a call; those that it does not set are the retriever's."""
        chosen = options.get("filter", self.filter)
        translated = translate(chosen) if isinstance(chosen, FilterDirective) else chosen
        return options.get("k", self.k), translated, options.get("threshold", self.threshold)


def translate(directive: FilterDirective) -> Filter:
    """Translate the filter of a structured query.

    Raises:
        UnsupportedFilter: If Taugate cannot express the filter.
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
