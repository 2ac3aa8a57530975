"""A reranker behind an HTTP endpoint: the dialect of text-embeddings-inference, or that of Cohere and Jina.

vLLM, Infinity and LiteLLM speak the latter, whose requests name a model. A reply is not trusted: it is read up to a
limit, and has to give every text one finite score.
"""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from cachetools import LRUCache

from taugate.errors import InputError, RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import RerankerScale
from taugate.release.encoder import Precision
from taugate.release.search_records import RerankerKind
from taugate.retrieval.rerank.stage import checked_scores
from taugate.storage.files import Json, read_secret
from taugate.storage.http_client import AttemptFailed
from taugate.storage.json_endpoint import EndpointWording, JsonEndpoint, url_and_key_file

URL, KEY_FILE = "TAUGATE_RERANK_URL", "TAUGATE_RERANK_KEY_FILE"
_WORDING = EndpointWording(
    url=URL,
    model="the model",
    key=KEY_FILE,
    key_sources=f"the file that {KEY_FILE} names",
    path="/rerank",
    expected="one score for each text",
)
_BATCH = 32  # texts of a request: text-embeddings-inference takes no more unless it is told to
_MAX_REPLY = 1 << 20  # bytes: some servers return the texts, of which 32 take 200 kB
_PARALLEL = 8  # requests at the same time, of which a server makes one batch
_CACHED = 100_000  # scores, 30 MB with their keys
# With a deadline, one failure is tried again at once. Without one, for which calibrations wait, the pauses double.
_TRIES, _TRIES_IN_TIME, _FIRST_WAIT = 6, 2, 0.5
_TIMEOUT = 60.0  # seconds of a request without a deadline


def reranker_endpoint(model: str | None) -> "RerankerEndpoint":
    """Return the endpoint that the environment names; see `endpoint_at`."""
    return endpoint_at(model, *url_and_key_file(os.environ, URL, KEY_FILE))


def endpoint_at(model: str | None, url: str, key_file: Path | None) -> "RerankerEndpoint":
    """Return the endpoint at a URL; nothing is sent to it yet.

    Args:
        model: Name of the model in requests; None for text-embeddings-inference, which serves one.
        url: URL with or without /rerank at its end.
        key_file: File with the key, None without one.
    """
    if not url:
        raise InputError(f"{URL} is not set; set it to the URL of the reranker, such as http://localhost:8080")
    key = None if key_file is None else read_secret(key_file, KEY_FILE) or None
    return RerankerEndpoint(JsonEndpoint(url, key, _WORDING), model)


class EndpointConfig(NamedTuple):
    """What is known of the model at an endpoint, as of the other kinds."""

    name: str
    first_stage_weight: float = 0.0
    precision: Precision = "float32"


class RerankerEndpoint:
    """Scores texts at an endpoint, and remembers the scores of a query and a text."""

    kind: RerankerKind = "endpoint"
    folder = None
    sha256 = None
    parallel = _PARALLEL

    def __init__(self, endpoint: JsonEndpoint, model: str | None) -> None:
        """Send requests to an endpoint.

        Args:
            model: Name of the model in the dialect of Cohere and Jina; None for that of text-embeddings-inference.
        """
        self._endpoint, self._model, self.config = endpoint, model, EndpointConfig(model or self.kind)
        self._cache: LRUCache[tuple[str, str], float] = LRUCache(_CACHED)
        self._lock = threading.Lock()  # of the cache
        self._batches = ThreadPoolExecutor(_PARALLEL, "taugate-rerank")

    def scale(self, scores: Float32) -> RerankerScale:
        """Return what its scores are, given those of the candidates."""
        return "similarity" if np.min(scores) >= 0 and np.max(scores) <= 1 else "logit"

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; see `TextScorer`."""
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
        self._endpoint.close()

    def _request(self, query: str, texts: list[str], deadline: float | None) -> dict[str, float]:
        """Score one batch of different texts; tries again after a failure that may pass."""
        body, failure = orjson.dumps(self._body(query, texts)), ""
        for attempt in range(_TRIES if deadline is None else _TRIES_IN_TIME):
            if attempt and deadline is None:
                time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
            seconds = _TIMEOUT if deadline is None else deadline - time.monotonic()
            if seconds <= 0:
                failure = failure or "no time was left"
                break
            try:
                scores = self._endpoint.attempt(
                    body, lambda content: self._parse(content, len(texts)), _MAX_REPLY, seconds
                )
                return dict(zip(texts, scores.tolist(), strict=True))
            except AttemptFailed as error:
                failure = str(error)
            except (InputError, ConnectionError) as error:
                raise RerankerUnavailable(str(error)) from error
        raise RerankerUnavailable(f"{self._endpoint.url}: {failure}; check {URL}")

    def _body(self, query: str, texts: list[str]) -> dict[str, Json]:
        if self._model is None:
            return {"query": query, "texts": texts, "truncate": True}
        return {"model": self._model, "query": query, "documents": texts, "top_n": len(texts)}

    def _parse(self, content: bytes, texts: int) -> Float32:
        """Return the scores in a reply, (n,) float32."""
        reply: Any = orjson.loads(content)
        rows, field = (reply, "score") if self._model is None else (reply["results"], "relevance_score")
        if sorted(row["index"] for row in rows) != [*range(texts)]:
            raise ValueError("it has other texts")
        scores = np.empty(texts, dtype=np.float32)
        for row in rows:
            scores[row["index"]] = row[field]
        return checked_scores(scores, texts, self._endpoint.url)
