"""Retriever for Haystack, and the translation of metadata filters."""

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.utils import Secret, deserialize_secrets_inplace

from taugate_client import LOCAL, Filter, SearchResponse, UnsupportedFilter
from taugate_client.filters import all_of, any_of, compare, negate
from taugate_client.retrieval import Retrieval, metadata

Json = dict[str, Any]  # Any: JSON


@component
class TaugateRetriever:
    """Return the passages that pass the calibrated threshold, best first.

    Empty `documents` mean that no passage passed; `reason` says why. If the service fails, a TaugateError is raised.
    """

    def __init__(
        self,
        url: str = LOCAL,
        key: Secret | None = None,
        k: int | None = None,
        *,
        filters: Json | None = None,
        threshold: float | None = None,
    ) -> None:
        """Configure the retriever; `run` also takes k, filters and threshold, for one call.

        Args:
            url: URL of the service.
            key: API key; TAUGATE_KEY by default.
            k: Number of results to consider; the calibrated K by default.
            filters: Haystack's filters on metadata.
            threshold: Threshold on the score. It can only be stricter than the calibrated one; None and 0 change
                nothing.

        Raises:
            UnsupportedFilter: If Taugate cannot express a filter.
        """
        self.url, self.k, self.filters, self.threshold = url, k, filters, threshold
        self.key = Secret.from_env_var("TAUGATE_KEY", strict=False) if key is None else key
        if filters:
            translate(filters)  # raises an error now rather than at the first query
        self._retrieval: Retrieval | None = None

    def warm_up(self) -> None:
        """Read the key and open the client; `run` does this if it was not done before."""
        if self._retrieval is None:
            self._retrieval = Retrieval(self.url, self.key.resolve_value() or "")

    @component.output_types(documents=list[Document], reason=str | None, query_id=str)
    def run(
        self, query: str, k: int | None = None, filters: Json | None = None, threshold: float | None = None
    ) -> Json:
        """Search.

        Args:
            query: Text to search for.
            k: Overrides the component's k unless None.
            filters: Override the component's filters unless None.
            threshold: Overrides the component's threshold unless None.

        Returns:
            `documents`, the `reason` if there are none, and `query_id` for feedback.
        """
        return _outputs(self._open().search(query, *self._options(k, filters, threshold)))

    @component.output_types(documents=list[Document], reason=str | None, query_id=str)
    async def run_async(
        self, query: str, k: int | None = None, filters: Json | None = None, threshold: float | None = None
    ) -> Json:
        """Search as `run` does, without blocking the event loop."""
        return _outputs(await self._open().search_async(query, *self._options(k, filters, threshold)))

    def to_dict(self) -> Json:
        """Return the component as a dictionary; the key is saved as the name of its environment variable."""
        return default_to_dict(
            self, url=self.url, key=self.key.to_dict(), k=self.k, filters=self.filters, threshold=self.threshold
        )

    @classmethod
    def from_dict(cls, data: Json) -> "TaugateRetriever":
        """Make a component from the dictionary of `to_dict`."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["key"])
        return default_from_dict(cls, data)

    def _open(self) -> Retrieval:
        self.warm_up()
        assert self._retrieval is not None  # noqa: S101 (for mypy)
        return self._retrieval

    def _options(
        self, k: int | None, filters: Json | None, threshold: float | None
    ) -> tuple[int | None, Filter | None, float | None]:
        chosen = filters or self.filters
        return (
            self.k if k is None else k,
            translate(chosen) if chosen else None,
            self.threshold if threshold is None else threshold,
        )


def translate(filters: Json) -> Filter:
    """Translate Haystack's filters.

    Raises:
        UnsupportedFilter: If Taugate cannot express a filter.
    """
    if "field" in filters:
        return compare(str(filters["field"]).removeprefix("meta."), str(filters.get("operator")), filters.get("value"))
    operator = str(filters.get("operator")).upper()
    if operator not in ("AND", "OR", "NOT") or not filters.get("conditions"):
        raise UnsupportedFilter("filter: expected a `field` with operator and value, or AND, OR, NOT with conditions")
    parts = [translate(condition) for condition in filters["conditions"]]
    if operator == "OR":
        return any_of(parts)
    return all_of(parts) if operator == "AND" else negate(all_of(parts))


def _outputs(reply: SearchResponse) -> Json:
    documents = [
        Document(id=result.id, content=result.text or "", meta=metadata(reply, result), score=result.score)
        for result in reply.results
    ]
    return {"documents": documents, "reason": reply.reason, "query_id": reply.query_id}
