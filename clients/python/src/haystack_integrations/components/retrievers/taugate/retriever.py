"""Haystack's retriever, and the translation of its metadata filters."""

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

    Empty `documents` are an answer: nothing passed, and `reason` says why. A service that cannot answer raises a
    TaugateError.
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
        """url: of the service. key: an API key; TAUGATE_KEY by default. filters: Haystack's, on metadata.

        k: how many results the service considers; the calibrated K by default. threshold: on the score; it can only
        tighten the calibrated one, and None or 0 leaves it alone. `run` takes k, filters and threshold as well, for one
        call. Raises UnsupportedFilter for a filter that Taugate has no condition for.
        """
        self.url, self.k, self.filters, self.threshold = url, k, filters, threshold
        self.key = Secret.from_env_var("TAUGATE_KEY", strict=False) if key is None else key
        if filters:
            translate(filters)  # an error now, not at the first query
        self._retrieval: Retrieval | None = None

    def warm_up(self) -> None:
        """Read the key and open the client; `run` does so itself where nobody has."""
        if self._retrieval is None:
            self._retrieval = Retrieval(self.url, self.key.resolve_value() or "")

    @component.output_types(documents=list[Document], reason=str | None, query_id=str)
    def run(
        self, query: str, k: int | None = None, filters: Json | None = None, threshold: float | None = None
    ) -> Json:
        """Search.

        Args:
            query: The text.
            k: Those of the component where None.
            filters: Those of the component where None.
            threshold: Those of the component where None.

        Returns:
            `documents`; `reason`, why there are none, or None; and `query_id`, for feedback.
        """
        return _outputs(self._open().search(query, *self._options(k, filters, threshold)))

    @component.output_types(documents=list[Document], reason=str | None, query_id=str)
    async def run_async(
        self, query: str, k: int | None = None, filters: Json | None = None, threshold: float | None = None
    ) -> Json:
        """Search as `run` does, without blocking the event loop."""
        return _outputs(await self._open().search_async(query, *self._options(k, filters, threshold)))

    def to_dict(self) -> Json:
        """Return what a pipeline saves; of the key, only the name of its environment variable."""
        return default_to_dict(
            self, url=self.url, key=self.key.to_dict(), k=self.k, filters=self.filters, threshold=self.threshold
        )

    @classmethod
    def from_dict(cls, data: Json) -> "TaugateRetriever":
        """Make a component from what `to_dict` returned."""
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
        UnsupportedFilter: For what Taugate has no condition for.
    """
    if "field" in filters:
        return compare(str(filters["field"]).removeprefix("meta."), str(filters.get("operator")), filters.get("value"))
    operator = str(filters.get("operator")).upper()
    if operator not in ("AND", "OR", "NOT") or not filters.get("conditions"):
        raise UnsupportedFilter("filter: expected a `field` with operator and value, or AND, OR, NOT with conditions")
    parts = [translate(each) for each in filters["conditions"]]
    if operator == "OR":
        return any_of(parts)
    return all_of(parts) if operator == "AND" else negate(all_of(parts))


def _outputs(reply: SearchResponse) -> Json:
    documents = [
        Document(id=result.id, content=result.text or "", meta=metadata(reply, result), score=result.score)
        for result in reply.results
    ]
    return {"documents": documents, "reason": reply.reason, "query_id": reply.query_id}
