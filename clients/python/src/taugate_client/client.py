"""The clients TaugateClient and AsyncTaugateClient, which send the calls of `api`."""

import asyncio
import itertools
import json
import os
import random
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx2

from taugate_client import api
from taugate_client.errors import (
    ConnectionFailed,
    InvalidConfiguration,
    InvalidRequest,
    TaugateError,
    TimedOut,
    Unavailable,
)
from taugate_client.models import (
    ExplainOptions,
    ExplainResponse,
    FeedbackResponse,
    GateResponse,
    ReleaseResponse,
    SearchOptions,
    SearchRequest,
    SearchResponse,
)
from taugate_client.route import route_to

T = TypeVar("T")
LOCAL = "http://127.0.0.1:8000"  # default address of `taugate serve`


@dataclass(frozen=True, slots=True)
class Retries:
    """Number of retries, and the pauses before them.

    A call is retried only after a broken connection and the statuses 408, 429, 503 and 504.

    Attributes:
        most: Maximum number of retries.
        first_seconds: Longest first pause. It doubles with each retry, and half of it is random, so that clients do not
            retry at the same time.
        longest_seconds: Longest pause. If the service asks for a longer one (Retry-After), the call is not retried, and
            the error has `retry_after`.
    """

    most: int = 3
    first_seconds: float = 0.2
    longest_seconds: float = 10.0

    def pause(self, error: TaugateError, attempt: int) -> float | None:
        """Return the seconds to wait after the attempt that failed, numbered from 1; None if it was the last one."""
        retryable = isinstance(error, Unavailable) or (type(error) is ConnectionFailed)
        if not retryable or attempt > self.most or (error.retry_after or 0.0) > self.longest_seconds:
            return None
        backoff = min(self.longest_seconds, self.first_seconds * 2.0 ** (attempt - 1))
        jitter = random.uniform(0.5, 1.0) * backoff  # noqa: S311 (spreads load, protects no secret)
        return jitter if error.retry_after is None else error.retry_after + jitter


class _Connection:
    """Shared base of both clients: configuration, requests and errors."""

    def __init__(
        self, url: str = LOCAL, key: str | None = None, *, timeout: float = 10.0, retries: Retries = Retries()
    ) -> None:
        """Configure the client. Proxies from the environment are used, as in httpx, unless the service is local.

        Args:
            url: URL of the service.
            key: API key; None reads TAUGATE_KEY from the environment, "" sends no key.
            timeout: Longest time without a byte of the reply, in seconds. The service itself gives up after 5 s.
            retries: Retries after a failure.

        Raises:
            InvalidConfiguration: If the URL, the key, the proxy or the certificates cannot be used. It is also a
                ValueError.
        """
        self._route = route_to(url)
        key = os.environ.get("TAUGATE_KEY", "") if key is None else key
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InvalidConfiguration("key: only printable ASCII characters without spaces can be sent")
        self._retries = retries
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            # The proxy comes from the route, so that errors name it.
            context = httpx2.create_ssl_context() if self._uses_tls else True
            self._open(headers=headers, timeout=timeout, proxy=self._route.proxy, verify=context, trust_env=False)
        except ImportError as error:
            raise self._unusable("a SOCKS proxy needs the extra: pip install 'httpx2[socks]'") from error
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            raise self._unusable(str(error)) from error

    def _open(self, **options: Any) -> None:  # noqa: ANN401 (options of httpx2's clients)
        raise NotImplementedError

    @property
    def _uses_tls(self) -> bool:
        return self._route.url.scheme == "https" or str(self._route.proxy).startswith("https://")

    def _unusable(self, reason: str) -> InvalidConfiguration:
        """Return the error for a proxy or, without a proxy, for certificates that cannot be used."""
        place = self._route.place("")
        if self._route.proxy is not None:
            return InvalidConfiguration(
                f"cannot connect to {place}: {reason}; change the variable, or add the host to NO_PROXY"
            )
        return InvalidConfiguration(f"cannot connect to {place}: {reason}; check SSL_CERT_FILE and SSL_CERT_DIR")

    def _request(self, call: api.Call[T]) -> dict[str, Any]:
        """Return a request with a new id, under which the service logs all attempts.

        Raises:
            InvalidRequest: If a value cannot be written as JSON.
        """
        request: dict[str, Any] = {"method": call.method, "url": call.path}
        headers = {"X-Request-ID": uuid.uuid4().hex}
        if call.body is None:
            return request | {"headers": headers}
        try:
            content = json.dumps(call.body, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:  # ValueError: NaN, and half a surrogate pair
            raise InvalidRequest(f"the request cannot be written as JSON: {error}") from error
        return request | {"headers": headers | {"Content-Type": "application/json"}, "content": content}

    def _lost(self, error: httpx2.RequestError, request: dict[str, Any]) -> ConnectionFailed:
        """Return the error for a missing or incomplete reply."""
        late = isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout)
        kind = TimedOut if late else ConnectionFailed
        lost = kind(f"no reply: {error or type(error).__name__}", request_id=request["headers"]["X-Request-ID"])
        lost.__cause__ = error
        return lost

    def _pause(self, failure: TaugateError, call: api.Call[T], attempt: int) -> float:
        """Return the seconds to wait before the next attempt; raise the failure if there is none."""
        failure.place = self._route.place(call.path)
        pause = self._retries.pause(failure, attempt)
        if pause is None:
            raise failure
        return pause


class TaugateClient(_Connection):
    """A blocking client. It keeps connections open, can be shared by threads, and is closed by `with`."""

    def search(self, query: str | None = None, **options: Unpack[SearchOptions]) -> SearchResponse:
        """Return the results that pass the threshold.

        Args:
            query: Text to search for; None if there is the option `vector`.
            options: Fields of SearchOptions.
        """
        return self._send(api.search(query, **options))

    def search_batch(self, queries: Iterable[str | SearchRequest]) -> list[SearchResponse]:
        """Return the replies to several queries, in the order of the queries.

        Args:
            queries: Texts, or SearchRequests with options.
        """
        return self._send(api.search_batch(queries))

    def feedback(self, query_id: str, document_id: str, *, relevant: bool) -> FeedbackResponse:
        """Judge whether a result answers its query. A judgement that is sent several times counts once.

        Args:
            query_id: Id of the reply.
            document_id: The `id` or `document_id` of one of its results.
            relevant: Whether the result answers the query.
        """
        return self._send(api.feedback(query_id, document_id, relevant=relevant))

    def feedback_on_query(self, query: str, document_id: str, *, relevant: bool) -> FeedbackResponse:
        """Judge whether a document answers a query, without the id of a reply. The key needs the scope `search`, too.

        Args:
            query: Text that was searched for.
            document_id: The `id` or `document_id` of a result that a search for the text, without options, returns now.
            relevant: Whether the document answers the query.

        Raises:
            InvalidRequest: If the search does not return the document.
        """
        return self._send(api.feedback_on_query(query, document_id, relevant=relevant))

    def explain(self, query: str | None, document_id: str, **options: Unpack[ExplainOptions]) -> ExplainResponse:
        """Return why a document is, or is not, among the results.

        Args:
            query: Text to search for; None if there is the option `vector`.
            document_id: Id of a chunk or of a document.
            options: Fields of ExplainOptions.
        """
        return self._send(api.explain(query, document_id, **options))

    def gate(
        self, results: Iterable[Mapping[str, Any]], *, query: str | None = None, k: int | None = None
    ) -> GateResponse:
        """Return the results of another retriever that pass the threshold of a release of `taugate calibrate-run`.

        Args:
            results: Results of a query, best first: `id`, `score` and, if calibrated, `scores` by name.
            query: Text of the query, for log and drift.
            k: How many of the results are considered; None for the K of the calibration.
        """
        return self._send(api.gate(results, query, k))

    def release(self) -> ReleaseResponse:
        """Return the release in service, with its manifest."""
        return self._send(api.release())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _open(self, **options: Any) -> None:  # noqa: ANN401
        self._http = httpx2.Client(base_url=self._route.url, **options)

    def _send(self, call: api.Call[T]) -> T:
        request = self._request(call)
        for attempt in itertools.count(1):
            try:
                reply = self._http.request(**request)
                return call.read(reply.status_code, reply.headers, reply.content)
            except httpx2.RequestError as error:
                failure: TaugateError = self._lost(error, request)
            except TaugateError as error:
                failure = error
            time.sleep(self._pause(failure, call, attempt))
        raise AssertionError("count() does not end")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncTaugateClient(_Connection):
    """TaugateClient for asyncio, with the same methods. It belongs to one event loop; `async with` closes it."""

    async def search(self, query: str | None = None, **options: Unpack[SearchOptions]) -> SearchResponse:
        """Return the results that pass the threshold, as TaugateClient.search does."""
        return await self._send(api.search(query, **options))

    async def search_batch(self, queries: Iterable[str | SearchRequest]) -> list[SearchResponse]:
        """Return the replies to several queries, as TaugateClient.search_batch does."""
        return await self._send(api.search_batch(queries))

    async def feedback(self, query_id: str, document_id: str, *, relevant: bool) -> FeedbackResponse:
        """Judge whether a result answers its query, as TaugateClient.feedback does."""
        return await self._send(api.feedback(query_id, document_id, relevant=relevant))

    async def feedback_on_query(self, query: str, document_id: str, *, relevant: bool) -> FeedbackResponse:
        """Judge whether a document answers a query, as TaugateClient.feedback_on_query does."""
        return await self._send(api.feedback_on_query(query, document_id, relevant=relevant))

    async def explain(self, query: str | None, document_id: str, **options: Unpack[ExplainOptions]) -> ExplainResponse:
        """Return why a document is, or is not, among the results, as TaugateClient.explain does."""
        return await self._send(api.explain(query, document_id, **options))

    async def gate(
        self, results: Iterable[Mapping[str, Any]], *, query: str | None = None, k: int | None = None
    ) -> GateResponse:
        """Return the results of another retriever that pass the threshold, as TaugateClient.gate does."""
        return await self._send(api.gate(results, query, k))

    async def release(self) -> ReleaseResponse:
        """Return the release in service, with its manifest."""
        return await self._send(api.release())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _open(self, **options: Any) -> None:  # noqa: ANN401
        self._http = httpx2.AsyncClient(base_url=self._route.url, **options)

    async def _send(self, call: api.Call[T]) -> T:
        request = self._request(call)
        for attempt in itertools.count(1):
            try:
                reply = await self._http.request(**request)
                return call.read(reply.status_code, reply.headers, reply.content)
            except httpx2.RequestError as error:
                failure: TaugateError = self._lost(error, request)
            except TaugateError as error:
                failure = error
            await asyncio.sleep(self._pause(failure, call, attempt))
        raise AssertionError("count() does not end")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
