"""mteb's SearchProtocol over HTTP: its evaluation asks the service as any client does."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from taugate_client import SearchRequest, TaugateClient

Run = dict[str, dict[str, float]]  # scores of documents, by query
_BATCH = 32  # queries of a request; the service takes 64


class HttpSearch:
    """A search model of mteb 2 whose corpus is that of the release in service.

    A score is the similarity as it is served. With `order="rank"` it is a number that falls from rank to rank: then an
    evaluator that sorts again, and breaks ties in its own way, has no tie to break.
    """

    def __init__(
        self, client: TaugateClient, threshold: float | None, meta: object, order: Literal["score", "rank"] = "score"
    ) -> None:
        """client: of the service; threshold: None for the calibrated one; meta: mteb's ModelMeta; order: see above."""
        self._client, self._threshold, self._meta, self._order = client, threshold, meta, order

    @property
    def mteb_model_meta(self) -> object:
        """What mteb calls the model."""
        return self._meta

    def index(self, corpus: object, **_: object) -> None:
        """Do nothing: the release has its index."""

    def search(self, queries: Sequence[Mapping[str, Any]], *, top_k: int, **_: object) -> Run:
        """Search for every query."""
        found: Run = {}
        rows = [*queries]
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            replies = self._client.search_batch(self._request(row["text"], top_k) for row in some)
            for row, reply in zip(some, replies, strict=True):
                found[row["id"]] = {result.id: self._score(result.score, result.rank) for result in reply.results}
        return found

    def _request(self, text: str, k: int) -> SearchRequest:
        request: SearchRequest = {"query": text, "k": k, "include_text": False, "explore": False}
        return request if self._threshold is None else {**request, "threshold": self._threshold}

    def _score(self, score: float, rank: int) -> float:
        return score if self._order == "score" else 1.0 / rank
