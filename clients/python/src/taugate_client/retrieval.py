"""What the retrievers of all frameworks share: how they connect, what they ask, and what they say of a reply."""

import asyncio
import logging
from dataclasses import replace

from taugate_client.client import AsyncTaugateClient, TaugateClient
from taugate_client.models import Filter, Result, SearchOptions, SearchResponse

# What the metadata of a passage says of its search: fields of the result, then of the reply.
SEARCH_FIELDS = (
    "id", "document_id", "rank", "score", "relevance", "query_id", "release", "calibrated", "calibration", "truncated",
)  # fmt: skip
_LOG = logging.getLogger("taugate_client")


class Retrieval:
    """Searches one service, from threads and from any number of event loops."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """url, key: as of TaugateClient."""
        self._url, self._key = url, key
        self._client = TaugateClient(url, key)
        self._of_loop: dict[asyncio.AbstractEventLoop, AsyncTaugateClient] = {}

    def search(
        self,
        query: str,
        k: int | None = None,
        filter: Filter | None = None,
        threshold: float | None = None,
    ) -> SearchResponse:
        """Search, and tighten the reply.

        Args:
            k: As of SearchOptions.
            filter: As of SearchOptions.
            threshold: None or 0 keeps what the service returns; for a positive one see `tighten`.
        """
        return _log_empty(tighten(self._client.search(query, **options(k, filter)), threshold))

    async def search_async(
        self,
        query: str,
        k: int | None = None,
        filter: Filter | None = None,
        threshold: float | None = None,
    ) -> SearchResponse:
        """Search as `search` does, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        client = self._of_loop.get(loop)
        if client is None:  # connections cannot move from one loop to another, and end with theirs
            client = AsyncTaugateClient(self._url, self._key)
            running = {each: kept for each, kept in self._of_loop.items() if not each.is_closed()}
            self._of_loop = {**running, loop: client}
        return _log_empty(tighten(await client.search(query, **options(k, filter)), threshold))


def tighten(reply: SearchResponse, threshold: float | None) -> SearchResponse:
    """Drop the results whose score is below a threshold of the caller's own.

    Args:
        threshold: None and 0 drop nothing, because many user interfaces send 0 where nobody chose a threshold. The
            service has applied the calibrated τ already, so a positive threshold can remove results but never add any.

    Raises:
        ValueError: For a negative one.
    """
    if threshold is not None and not threshold >= 0:  # NaN neither
        raise ValueError("threshold: it can only tighten the calibrated one; leave it out, or use a positive number")
    kept = tuple(result for result in reply.results if not threshold or result.score >= threshold)
    dropped = len(reply.results) - len(kept)
    if not dropped:
        return reply
    return replace(reply, results=kept, dropped=reply.dropped + dropped, reason=None if kept else "all_below_threshold")


def metadata(reply: SearchResponse, result: Result) -> dict[str, object]:
    """Return a result's metadata, its title if it has one, and what is known of its search (SEARCH_FIELDS).

    A field of the document that has the name of one of these is kept as `document.<name>`.
    """
    known = {name: getattr(result if hasattr(result, name) else reply, name) for name in SEARCH_FIELDS}
    ours = known if result.title is None else known | {"title": result.title}
    return {f"document.{name}" if name in ours else name: value for name, value in result.metadata.items()} | ours


def reason_of_empty(reply: SearchResponse) -> dict[str, object]:
    """Return why a reply has no results, as the events of LangChain and LlamaIndex carry it."""
    names = ("reason", "best_score", "threshold", "considered", "query_id", "release", "calibration", "truncated")
    return {name: getattr(reply, name) for name in names}


def options(k: int | None, filter: Filter | None) -> SearchOptions:
    """Return the options of a search whose results go to a model.

    Args:
        k: As of SearchOptions; None: the default.
        filter: As of SearchOptions; None: the default.
    """
    chosen: SearchOptions = {"explore": False}  # a framework hands all results to a model, and has no mark for these
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
