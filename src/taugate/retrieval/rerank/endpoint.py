"""A reranker behind an HTTP endpoint: the dialect of text-embeddings-inference, or that of Cohere and Jina.

vLLM, Infinity and LiteLLM speak the latter, whose requests name a model. A reply is not trusted: it is read up to a
limit, and has to give every text one finite score.
"""

import http.client
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson
from cachetools import LRUCache

from taugate.errors import InputError, RerankerUnavailable
from taugate.retrieval.rerank.reranker import checked_scores
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import read_bounded

URL, KEY_FILE = "TAUGATE_RERANK_URL", "TAUGATE_RERANK_KEY_FILE"
_BATCH = 32  # texts of a request: text-embeddings-inference takes no more unless it is told to
_MAX_REPLY = 1 << 20  # bytes: some servers return the texts, of which 32 take 200 kB
_PARALLEL = 8  # requests at the same time, of which a server makes one batch
_CACHED = 100_000  # scores, 30 MB with their keys
# With a deadline, one failure is tried again at once. Without one, for which calibrations wait, the pauses double.
_TRIES, _TRIES_IN_TIME, _FIRST_WAIT = 6, 2, 0.5
_TIMEOUT = 60.0  # seconds of a request without a deadline
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504, 529}
_KEY = re.compile(r"[!-~]+")  # characters allowed in a header after "Bearer "
_MAX_KEY_BYTES = 64 << 10


def reranker_endpoint(model: str | None) -> "RerankerEndpoint":
    """Return the endpoint that the environment names; see `endpoint_at`."""
    key_file = os.environ.get(KEY_FILE)
    return endpoint_at(model, os.environ.get(URL, ""), Path(key_file) if key_file else None)


def endpoint_at(model: str | None, url: str, key_file: Path | None) -> "RerankerEndpoint":
    """Return the endpoint at a URL; nothing is sent to it yet.

    Args:
        model: Name of the model in requests; None for text-embeddings-inference, which serves one.
        url: URL with or without /rerank at its end.
        key_file: File with the key, None without one.

    Raises:
        InputError: If the URL is missing or invalid, or the file cannot be read.
    """
    url = url.rstrip("/")
    if not url:
        raise InputError(f"{URL} is not set; set it to the URL of the reranker, such as http://localhost:8080")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InputError(f"{URL}: not http://HOST:PORT or https://…; put a key into the file that {KEY_FILE} names")
    return RerankerEndpoint(url if url.endswith("/rerank") else f"{url}/rerank", model, _key(key_file))


def _key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = read_bounded(path.resolve(), _MAX_KEY_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{KEY_FILE}: {path} cannot be read as text; name a file with the key alone") from error
    if not _KEY.fullmatch(key):
        raise InputError(f"{KEY_FILE}: {path} holds a space, a line break or a letter with an accent; copy it again")
    return key


class RerankerEndpoint:
    """Scores texts at an endpoint, and remembers the scores of a query and a text."""

    parallel = _PARALLEL

    def __init__(self, url: str, model: str | None, key: str | None) -> None:
        """Send requests to an endpoint.

        Args:
            url: URL to post to.
            model: Name of the model in the dialect of Cohere and Jina; None for that of text-embeddings-inference.
            key: Key, sent as a bearer token; None for none.
        """
        self.name, self._model = urlsplit(url)._replace(query="").geturl(), model
        self._parts = urlsplit(url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._context = ssl.create_default_context() if self._parts.scheme == "https" else None
        self._idle: list[http.client.HTTPConnection] = []
        self._cache: LRUCache[tuple[str, str], float] = LRUCache(_CACHED)
        self._lock = threading.Lock()  # of both
        self._batches = ThreadPoolExecutor(_PARALLEL, "taugate-rerank")

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; see `Reranker`."""
        with self._lock:
            known = {text: self._cache[query, text] for text in texts if (query, text) in self._cache}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        batches = [missing[start : start + _BATCH] for start in range(0, len(missing), _BATCH)]
        if len(batches) > 1:
            scored = list(self._batches.map(lambda batch: self._request(query, batch, deadline), batches))
        else:
            scored = [self._request(query, batch, deadline) for batch in batches]
        added = {text: score for batch, scores in zip(batches, scored, strict=True) for text, score in scores.items()}
        with self._lock:
            self._cache.update({(query, text): score for text, score in added.items()})
        known |= added
        return np.array([known[text] for text in texts], dtype=np.float32)

    def forget(self) -> None:
        """Forget all scores, so that the next ones come from the endpoint."""
        with self._lock:
            self._cache.clear()

    def close(self) -> None:
        """Close the connections."""
        self._batches.shutdown(wait=False)
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _request(self, query: str, texts: list[str], deadline: float | None) -> dict[str, float]:
        """Score one batch of different texts; tries again after a failure that may pass."""
        body = orjson.dumps(self._body(query, texts))
        tries, failure = _TRIES if deadline is None else _TRIES_IN_TIME, ""
        for attempt in range(tries):
            if attempt and deadline is None:
                time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
            try:
                status, content = self._post(body, _TIMEOUT if deadline is None else deadline - time.monotonic())
            except (OSError, http.client.HTTPException) as error:
                failure = f"no reply ({type(error).__name__})"
            else:
                if status == http.client.OK:
                    return dict(zip(texts, self._parse(content, len(texts)).tolist(), strict=True))
                failure = f"status {status}"
                if status not in _TRANSIENT:
                    break
            if deadline is not None and time.monotonic() >= deadline:
                break
        raise RerankerUnavailable(f"{self.name}: {failure}; check {URL} and {KEY_FILE}")

    def _body(self, query: str, texts: list[str]) -> dict[str, Any]:
        if self._model is None:
            return {"query": query, "texts": texts, "truncate": True}
        return {"model": self._model, "query": query, "documents": texts, "top_n": len(texts)}

    def _post(self, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Send a request; returns the status and at most _MAX_REPLY + 1 bytes of the reply.

        Raises:
            OSError: If there is no connection, or no whole reply within `seconds`.
            HTTPException: If the reply is not HTTP.
        """
        if seconds <= 0:
            raise TimeoutError
        with self._lock:
            connection = self._idle.pop() if self._idle else self._connection()
        end, kept = time.monotonic() + seconds, False
        if connection.sock is None:
            connection.timeout = seconds
            connection.connect()
        connection.sock.settimeout(seconds)
        # A timeout of the socket begins anew with every byte; the watchdog ends a reply that drips.
        watchdog = threading.Timer(end - time.monotonic(), _end, (connection.sock,))
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request("POST", self._parts.path, body, self._headers)
            reply = connection.getresponse()
            content = reply.read(_MAX_REPLY + 1)
            if time.monotonic() >= end:  # the watchdog makes a reply without a length look complete
                raise TimeoutError
            kept = reply.isclosed() and not reply.will_close
            return reply.status, content
        finally:
            watchdog.cancel()
            if kept:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._context is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=self._context)

    def _parse(self, content: bytes, texts: int) -> Float32:
        """Return the scores in a reply, (n,) float32; raises RerankerUnavailable if it has others than requested."""
        try:
            if len(content) > _MAX_REPLY:
                raise ValueError("too long")
            reply: Any = orjson.loads(content)
            rows, field = (reply, "score") if self._model is None else (reply["results"], "relevance_score")
            scores = np.full(texts, np.nan, dtype=np.float32)
            if sorted(row["index"] for row in rows) != [*range(texts)]:
                raise ValueError("other texts")
            for row in rows:
                scores[row["index"]] = row[field]
        except (ValueError, KeyError, TypeError, IndexError, OverflowError):
            raise RerankerUnavailable(
                f"{self.name}: the reply does not give {texts} texts one score each; check {URL}, and the model"
            ) from None
        return checked_scores(scores, texts, self.name)


def _end(connection: socket.socket) -> None:
    """Wake the thread that reads from a connection."""
    with suppress(OSError):  # closed meanwhile
        connection.shutdown(socket.SHUT_RDWR)
