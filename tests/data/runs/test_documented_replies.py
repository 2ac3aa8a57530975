"""Elasticsearch and Weaviate are not installed: their requests and replies are those of their documented APIs.

Elasticsearch: REST APIs `_search` and `_msearch`. Weaviate: GraphQL `Get` with `hybrid` and `_additional`.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from taugate.data.runs.presets import HttpStore, Names, preset
from taugate.data.runs.search_request import StoreRequest, StoreSearch
from taugate.errors import InputError
from tests.loopback import LoopbackHTTPServer

QUERY = {"query_id": "q1", "query": 'Who "pays"?', "vector": [0.5, 0.25], "depth": 2}
NAMES = Names("Documents", None, None, "text", reads_texts=True)


def hits(*scores: float) -> dict[str, Any]:
    """The documented reply to a search, with documents d0, d1, …"""
    listed = [
        {"_index": "documents", "_id": f"d{place}", "_score": score, "_source": {"text": f"text {place}"}}
        for place, score in enumerate(scores)
    ]
    total = {"value": len(scores), "relation": "eq"}
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    found = {"total": total, "max_score": scores[0] if scores else None, "hits": listed}
    return {"took": 2, "timed_out": False, "_shards": shards, "hits": found}


class Recorded:
    """A server that replies with `reply`, and keeps path, headers and body of the last request."""

    def __init__(self) -> None:
        self.url, self.path, self.body = "", "", b""
        self.reply: Any = None
        self.headers: dict[str, str] = {}


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    state = Recorded()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.path, state.headers = self.path, dict(self.headers)
            state.body = self.rfile.read(int(self.headers["Content-Length"]))
            content = json.dumps(state.reply).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with LoopbackHTTPServer(Handler) as server:
        state.url = server.url
        yield state


def search_of(kind: str, url: str, *, has_vectors: bool = False, **own: object) -> StoreSearch:
    request = preset(kind, NAMES, has_vectors=has_vectors) | own
    return StoreSearch(StoreRequest.parse(request, "request"), HttpStore(kind, url, "secret"))


def test_elasticsearch_words_are_searched(recorded: Recorded) -> None:
    recorded.reply = hits(3.5, 1.25)
    results = search_of("elasticsearch", recorded.url).search(QUERY)
    assert [(result.id, result.score, result.text) for result in results] == [
        ("d0", 3.5, "text 0"),
        ("d1", 1.25, "text 1"),
    ]
    assert (recorded.path, recorded.headers["Authorization"]) == ("/Documents/_search", "ApiKey secret")
    body = json.loads(recorded.body)
    assert body == {"query": {"match": {"text": 'Who "pays"?'}}, "size": 2, "_source": ["text"]}


def test_elasticsearch_vectors_are_searched(recorded: Recorded) -> None:
    recorded.reply = hits(0.9)
    search_of("elasticsearch", recorded.url, has_vectors=True).search(QUERY)
    knn = json.loads(recorded.body)["knn"]
    assert knn == {"field": "vector", "query_vector": [0.5, 0.25], "k": 2, "num_candidates": 1000}


def test_elasticsearch_fused_list_gets_component_scores(recorded: Recorded) -> None:
    words, dense = {"query": {"match": {"text": "$query"}}}, {"knn": {"field": "v", "query_vector": "$vector", "k": 9}}
    fused = {"retriever": {"rrf": {"retrievers": [{"standard": words}, dense]}}}
    search = search_of(
        "elasticsearch",
        recorded.url,
        path="/Documents/_msearch",
        body=[part for body in (fused, words, dense) for part in ({}, {**body, "size": "$depth"})],
        results="responses.0.hits.hits",
        components={"bm25": "responses.1.hits.hits", "dense": "responses.2.hits.hits"},
    )
    recorded.reply = {"took": 3, "responses": [hits(0.03, 0.02), hits(7), hits(0.9, 0.8)]}
    first, second = search.search(QUERY)
    assert (first.scores, second.scores) == ({"bm25": 7.0, "dense": 0.9}, {"dense": 0.8})
    assert recorded.headers["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in recorded.body.decode().splitlines()]
    assert lines[3] == {"query": {"match": {"text": 'Who "pays"?'}}, "size": 2}


@pytest.mark.parametrize(
    "reply",
    [
        {**hits(1), "timed_out": True},
        {**hits(1), "_shards": {"failed": 1, "failures": [{"shard": 0, "reason": {"type": "query_shard_exception"}}]}},
        {"responses": [{"error": {"type": "index_not_found_exception"}, "status": 404}]},
        {"data": {"Get": {"Documents": None}}, "errors": [{"message": "no such class"}]},
    ],
)
def test_partly_failed_search_is_an_error(recorded: Recorded, reply: Any) -> None:
    recorded.reply = reply
    with pytest.raises(InputError, match="a part of the search failed: "):
        search_of("elasticsearch", recorded.url).search(QUERY)


def test_weaviate_is_searched_by_graphql(recorded: Recorded) -> None:
    listed = [{"text": "text 0", "_additional": {"id": "36ddd591-2dee-4e7e-a3cc-eb86d30a4303", "score": "0.85"}}]
    recorded.reply = {"data": {"Get": {"Documents": listed}}}
    (result,) = search_of("weaviate", recorded.url, has_vectors=True).search(QUERY)
    assert (result.id, result.score, result.text) == ("36ddd591-2dee-4e7e-a3cc-eb86d30a4303", 0.85, "text 0")
    assert (recorded.path, recorded.headers["Authorization"]) == ("/v1/graphql", "Bearer secret")
    assert json.loads(recorded.body)["query"] == (
        '{Get{Documents(hybrid:{query:"Who \\"pays\\"?",vector:[0.5,0.25]},limit:2){text _additional{id score}}}}'
    )


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("elasticsearch", "/Documents/_delete_by_query"),
        ("elasticsearch", "/Documents/_doc/1"),
        ("elasticsearch", "/Documents/../_bulk/_search"),
        ("qdrant", "/collections/Documents/points/delete"),
        ("weaviate", "/v1/objects"),
    ],
)
def test_path_that_may_write_is_not_sent(recorded: Recorded, kind: str, path: str) -> None:
    with pytest.raises(InputError, match=f"is not a search of {kind}, and nothing else is sent"):
        search_of(kind, recorded.url, path=path).search(QUERY)
    assert not recorded.body
