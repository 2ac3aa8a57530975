"""Milvus servers that hold the same collections, through `pymilvus`: connections, deadlines and refusals."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
from pymilvus import MilvusClient, MilvusException

from taugate.errors import ReleaseError
from taugate.retrieval.engines.engine import not_a_url
from taugate_engines.replicas import Replicas

_SCHEMES = ("http", "https", "tcp", "unix")
# Error codes that count as replies of the server (milvus-io/milvus, pkg/util/merr/errors.go).
_REFUSALS = {100: "does not exist", 101: "is not loaded", 700: "has no index"}

_Result = TypeVar("_Result")

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs every error that it raises, with a traceback


class MilvusServers:
    """Servers with one MilvusClient each; safe to use from several threads.

    Args:
        urls: One or more URLs such as http://127.0.0.1:19530, or a path ending in .db for milvus-lite.
        token: "user:password" or an API key; empty if there is none.
    """

    def __init__(
        self, urls: Sequence[str], token: str, *, remedy: str = "upload the collection again, or load it"
    ) -> None:
        for url in urls:
            _check_url(url)
        self._remedy = remedy
        self._replicas = Replicas("milvus", urls, partial(_connect, token), _is_unavailable)

    def run(
        self, name: str, request: Callable[[Any, float], _Result], deadline: float, *, retry: bool = True
    ) -> _Result:
        """Run a request on the server that replied last or, if it fails, on the next one.

        Args:
            request: Called with a client and a deadline.
        """
        with _refusals(name, self._remedy):
            return self._replicas.run(request, deadline, retry=retry)

    def run_on_each(self, name: str, request: Callable[[Any, float], _Result], deadline: float) -> list[_Result]:
        """Run a request on every server; see Replicas.run_on_each, and `run` for parameters and errors."""
        with _refusals(name, self._remedy):
            return self._replicas.run_on_each(request, deadline)


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no time is left")
    return seconds


@contextmanager
def _refusals(name: str, remedy: str) -> Iterator[None]:
    """Raise a refusal of Milvus as ReleaseError."""
    try:
        yield
    except MilvusException as error:
        reason = _REFUSALS.get(error.code, f"cannot be used: {error.message}")
        raise ReleaseError(f"{name}: {reason}; {remedy}") from error


def _connect(token: str, url: str, deadline: float) -> Any:  # noqa: ANN401
    return MilvusClient(url, token=token, timeout=remaining(deadline))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and parts.port != 0  # `port` raises ValueError if it is not a number
    except ValueError:
        valid = False
    if not valid and not url.endswith(".db"):
        raise not_a_url("milvus", "http://HOST:19530")


def _is_unavailable(error: Exception) -> bool:
    if isinstance(error, MilvusException):
        refusal: Any = error
        return refusal.code not in _REFUSALS
    return isinstance(error, grpc.RpcError | OSError)
