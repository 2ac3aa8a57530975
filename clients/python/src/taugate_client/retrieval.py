"""Shared parts of the retrievers for all frameworks: connections, search options, and metadata of replies."""

import asyncio
import logging
from dataclasses import replace

from taugate_client.client import AsyncTaugateClient, TaugateClient
from taugate_client.filters import Filter
from taugate_client.models import Result, SearchOptions, SearchResponse

# Fields of the result and of the reply that are added to the metadata of a passage.
SEARCH_FIELDS = (
    "id", "document_id", "rank", "score", "relevance", "query_id", "release", "calibrated", "calibration", "truncated",
)  # fmt: skip
_LOG = logging.getLogger("taugate_client")  # a documented name


class Retrieval:
    """Searches one service, from threads and from any number of event loops."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Open a client; the arguments are those of TaugateClient."""
        self._url, self._key = url, key
        self._client = TaugateClient(url, key)
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncTaugateClient] = {}

    def search(
        self, query: str, k: int | None = None, filter: Filter | None = None, threshold: float | None = None
    ) -> SearchResponse:
        """Search, and drop results below the caller's threshold as `tighten` does."""
        return _log_empty(tighten(self._client.search(query, **options(k, filter)), threshold))

    async def search_async(
        self, query: str, k: int | None = None, filter: Filter | None = None, threshold: float | None = None
    ) -> SearchResponse:
        """Search as `search` does, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        client = self._of_loop.get(loop)
        if client is None:  # connections belong to an event loop, and end with it
            client = AsyncTaugateClient(self._url, self._key)
            running = {other: other_client for other, other_client in self._of_loop.items() if not other.is_closed()}
            self._of_loop = {**running, loop: client}
        return _log_empty(tighten(await client.search(query, **options(k, filter)), threshold))


def tighten(reply: SearchResponse, threshold: float | None) -> SearchResponse:
    """Drop the results that score below the caller's own threshold.

    Args:
        reply: A reply, to which the service has applied the calibrated τ. A threshold can only remove further results.
        threshold: None and 0 drop nothing, because many user interfaces send 0 if no threshold was chosen.

    Raises:
        ValueError: If the threshold is negative or NaN.
    """
    if threshold is not None and not threshold >= 0:  # also true for NaN
        raise ValueError("threshold: it can only tighten the calibrated one; leave it out, or use a positive number")
    kept = tuple(result for result in reply.results if not threshold or result.score >= threshold)
    dropped = len(reply.results) - len(kept)
    if not dropped:
        return reply
    return replace(reply, results=kept, dropped=reply.dropped + dropped, reason=None if kept else "all_below_threshold")


def metadata(reply: SearchResponse, result: Result) -> dict[str, object]:
    """Return a result's metadata, its title if it has one, and the SEARCH_FIELDS.

    A document's field with the same name as one of these becomes `document.<name>`.
    """
    added = {name: getattr(result if hasattr(result, name) else reply, name) for name in SEARCH_FIELDS}
    if result.title is not None:
        added["title"] = result.title
    renamed = {f"document.{name}" if name in added else name: value for name, value in result.metadata.items()}
    return {**renamed, **added}


def reason_of_empty(reply: SearchResponse) -> dict[str, object]:
    """Return why a reply has no results, as the payload of the events for LangChain and LlamaIndex."""
    names = ("reason", "best_score", "threshold", "considered", "query_id", "release", "calibration", "truncated")
    return {name: getattr(reply, name) for name in names}


def options(k: int | None, filter: Filter | None) -> SearchOptions:
    """Return the options of a search for a language model; None stands for the service's default."""
    chosen: SearchOptions = {
        "explore": False
    }  # frameworks pass all results to the model, also ones below the threshold
    if k is not None:
        chosen["k"] = k
    if filter:
        chosen["filter"] = filter
    return chosen


def _log_empty(reply: SearchResponse) -> SearchResponse:
    if not reply.results:
        _LOG.info(
            "no result: %s (best score %s, threshold %s, query_id %s)",
            reply.reason, reply.best_score, reply.threshold, reply.query_id,
        )  # fmt: skip
    return reply
