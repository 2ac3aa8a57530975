"""Milvus servers that hold the same collections, through `pymilvus`: connections, deadlines, what a refusal says."""

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
from taugate.retrieval.engines.replicas import Replicas

_SCHEMES = ("http", "https", "tcp", "unix")
# Codes of refusals, which are answers (milvus-io/milvus, pkg/util/merr/errors.go).
_REFUSALS = {100: "is not there", 101: "is not loaded", 700: "has no index"}

_Answer = TypeVar("_Answer")

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs every error that it raises, with a traceback


class MilvusServers:
    """Servers that are asked through a MilvusClient each; safe to use from several threads.

    Attributes:
        urls: Such as http://127.0.0.1:19530, one or more; a path ending in .db for milvus-lite.
        token: "user:password" or an API key; empty for none.

    Raises:
        InputError: For a URL of anything else.
    """

    def __init__(self, urls: Sequence[str], token: str) -> None:
        for url in urls:
            _check_url(url)
        self._replicas = Replicas("milvus", urls, partial(_connect, token), _is_no_answer)

    def ask(
        self, name: str, question: Callable[[Any, float], _Answer], deadline: float, *, again: bool = True
    ) -> _Answer:
        """Ask the server that answered last, and where it does not, the next one.

        Args:
            name: Of the collection that is asked about.
            question: Of a client, with a deadline of its own.
            deadline: See Replicas.ask.
            again: See Replicas.ask.

        Raises:
            EngineUnavailable: , and ReleaseError where Milvus refuses.
        """
        with _refusals(name):
            return self._replicas.ask(question, deadline, again=again)

    def ask_each(self, name: str, question: Callable[[Any, float], _Answer], deadline: float) -> list[_Answer]:
        """Ask every server; see Replicas.ask_each, and `ask` for parameters and errors."""
        with _refusals(name):
            return self._replicas.ask_each(question, deadline)


def left(deadline: float) -> float:
    """Return how many seconds are left until a deadline.

    Raises:
        TimeoutError: Where none are.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no time is left")
    return seconds


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Say in a ReleaseError what Milvus refuses, which is an answer, if not the one that was asked for."""
    try:
        yield
    except MilvusException as error:
        what = _REFUSALS.get(error.code, f"cannot be used: {error.message}")
        raise ReleaseError(f"{name}: {what}; upload the collection again, or load it") from error


def _connect(token: str, url: str, deadline: float) -> Any:  # noqa: ANN401
    return MilvusClient(url, token=token, timeout=left(deadline))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        known = parts.scheme in _SCHEMES and parts.port != 0  # which raises ValueError for what is no port
    except ValueError:
        known = False
    if not known and not url.endswith(".db"):
        raise not_a_url("milvus", "http://HOST:19530")


def _is_no_answer(error: Exception) -> bool:
    if isinstance(error, MilvusException):
        answer: Any = error
        return answer.code not in _REFUSALS
    return isinstance(error, grpc.RpcError | OSError)
