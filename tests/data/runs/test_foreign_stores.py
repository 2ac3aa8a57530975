"""Stores of the user's own are searched, and nothing is ever written to them: seen at the socket."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from taugate.data.runs.presets import HttpStore, Names, preset
from taugate.data.runs.search_request import ExternalStore, StoreRequest, StoreSearch
from taugate.errors import InputError
from tests.data.runs.qdrant_local import COLLECTION, qdrant
from tests.data.runs.watched_socket import WatchedSocket

VECTORS = np.eye(4, dtype=np.float32) + 0.1
TEXTS = ["a roof", "a wall", "a door", "a floor"]
NAMES = Names(COLLECTION, None, None, "text", reads_texts=True)
QUERY = {"query_id": "q1", "query": "Which roof?", "vector": VECTORS[0].tolist(), "depth": 3}


def search_of(kind: str, store: ExternalStore, **own: object) -> StoreSearch:
    request = preset(kind, NAMES, has_vectors=True) | own
    return StoreSearch(StoreRequest.parse(request, "request"), store)


def check_results(search: StoreSearch, ids: list[str]) -> None:
    results = search.search(QUERY)
    assert len(results) == 3
    assert (results[0].id, results[0].text) == (ids[0], TEXTS[0])
    assert results[0].score == pytest.approx(1, abs=1e-5)
    assert results[0].score > results[1].score >= results[2].score
    sampled = search.sample(4)
    assert sampled == dict(zip(ids, TEXTS, strict=True))


@pytest.fixture
def qdrant_url() -> Iterator[str]:
    client = QdrantClient(":memory:")
    vectors = models.VectorParams(size=4, distance=models.Distance.COSINE)
    client.create_collection(COLLECTION, {"": vectors}, {"sparse": models.SparseVectorParams()})
    client.upsert(
        COLLECTION,
        [
            models.PointStruct(
                id=place + 1,
                vector={"": VECTORS[place].tolist(), "sparse": models.SparseVector(indices=[place], values=[2.0])},
                payload={"text": text},
            )
            for place, text in enumerate(TEXTS)
        ],
    )
    with qdrant(client) as url:
        yield url


def test_qdrant_is_searched_and_only_searched(qdrant_url: str) -> None:
    with WatchedSocket(urlsplit(qdrant_url).port or 0) as watched:
        check_results(
            search_of("qdrant", HttpStore("qdrant", f"http://127.0.0.1:{watched.port}")), ["1", "2", "3", "4"]
        )
        (sent,) = watched.connections
    lines = re.findall(rb"^([A-Z]+) (\S+) HTTP/1\.1\r$", sent, re.MULTILINE)
    assert {*lines} == {(b"POST", b"/collections/documents/points/query")}


def test_qdrant_batch_gives_component_scores(qdrant_url: str) -> None:
    dense = {"query": "$vector", "limit": 10}
    sparse = {"query": "$sparse", "using": "sparse", "limit": 10}
    fused = {"prefetch": [dense, sparse], "query": {"fusion": "rrf"}, "limit": "$depth"}
    search = search_of(
        "qdrant",
        HttpStore("qdrant", qdrant_url),
        path=f"/collections/{COLLECTION}/points/query/batch",
        body={"searches": [{**fused, "with_payload": True}, dense, sparse]},
        results="result.0.points",
        components={"dense": "result.1.points", "sparse": "result.2.points"},
    )
    first, second, _ = search.search(QUERY | {"sparse": {"indices": [0], "values": [3.0]}})
    assert first.scores == {"dense": pytest.approx(1, abs=1e-5), "sparse": 6.0}
    assert "sparse" not in second.scores
    assert first.score > second.score
    with pytest.raises(InputError, match=r"query 'q1': the request needs \$sparse; add the field to its line"):
        search.search(QUERY)
