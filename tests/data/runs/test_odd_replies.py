"""A store may reply with any JSON: every part of a reply that is of another type gives one sentence, or is not read."""

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.data.runs.presets import _TIMEOUT, HttpStore, Names, preset
from taugate.data.runs.search_request import ExternalStore, StoreRequest, StoreSearch
from taugate.errors import InputError
from taugate.storage.http_client import AttemptFailed
from tests.loopback import LoopbackHTTPServer

QUERY = {"query_id": "q1", "query": "roof", "vector": [0.5, 1.0], "depth": 3}
KINDS = ["qdrant", "elasticsearch", "weaviate", "http"]
OWN = {
    "path": "/find",
    "body": {"q": "$query"},
    "results": "found.0.hits",
    "id": "meta.id",
    "score": "meta.score",
    "text": "fields.text",
    "scores": "meta.parts",
    "components": {"words": {"results": "words", "id": "name", "score": "value"}},
}
DEEP = json.loads("[" * 300 + "]" * 300)
ODD = [
    DEEP,
    None,
    True,
    False,
    0,
    5,
    -1,
    2**70,
    1e308,
    0.5,
    "",
    "x",
    "NaN",
    "1e400",
    [],
    [1],
    [None],
    [[]],
    ["x"],
    {},
    {"a": 1},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def request_of(kind: str) -> StoreRequest:
    names = Names("docs", None, None, "text", reads_texts=True)
    return StoreRequest.parse(OWN if kind == "http" else preset(kind, names, has_vectors=True), kind)


def put(value: Any, place: str, part: Any) -> Any:
    """Return a value with a part at a place; lists and objects on the way are made."""
    name, _, rest = place.partition(".")
    value = value if value is not None else ([] if name.isdecimal() else {})
    part = put(value.get(name) if isinstance(value, dict) else None, rest, part) if rest else part
    return [part] if isinstance(value, list) else {**value, name: part}


def good_result(request: StoreRequest) -> Any:
    item: Any = None
    for place, part in ((request.id, "d1"), (request.score, 0.5), (request.text or "text", "a roof")):
        item = put(item, place, part)
    return put(item, request.scores, {"words": 0.25}) if isinstance(request.scores, str) else item


def good_reply(kind: str, request: StoreRequest) -> Any:
    reply = put(None, request.results, [good_result(request)])
    if kind == "elasticsearch":
        reply |= {"_shards": {"failures": []}, "responses": [{"_shards": {}}], "timed_out": False, "errors": None}
    return reply | {"words": [{"name": "d1", "value": 3}]}


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, part in parts for place in places(part, (*path, name)))]


def replaced(value: Any, path: tuple[str | int, ...], odd: Any) -> Any:
    if not path:
        return odd
    value = deepcopy(value)
    part = value
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = odd
    return value


@cache
def http_store(kind: str) -> Any:
    return HttpStore(kind, "http://127.0.0.1:1")


def store_of(kind: str, reply: Any) -> ExternalStore:
    store: Any = http_store(kind)
    content = json.dumps(reply).replace("NaN", "null").replace("Infinity", "1e999").encode()
    store._http.request = lambda *_: (200, {}, content)
    return store


def check(search: StoreSearch) -> None:
    for run in (lambda: search.search(QUERY), lambda: search.sample(3)):
        try:
            results = run()
        except InputError as error:
            assert "\n" not in str(error)
            continue
        if isinstance(results, dict):
            assert all(isinstance(part, str) and part for name_text in results.items() for part in name_text)
            continue
        for result in results:
            assert result.id not in {"", "None", "True", "False"}
            assert math.isfinite(result.score)
            assert result.score is not True
            assert result.text is None or isinstance(result.text, str)
            assert all(map(math.isfinite, result.scores.values()))
            orjson.dumps(result.record())


def all_places(kind: str) -> list[tuple[str | int, ...]]:
    return places(good_reply(kind, request_of(kind)))


def search_with(kind: str, path: tuple[str | int, ...], odd: Any) -> StoreSearch:
    request = request_of(kind)
    return StoreSearch(request, store_of(kind, replaced(good_reply(kind, request), path, odd)))


@pytest.mark.parametrize("kind", KINDS)
def test_odd_type_at_every_place_gives_one_sentence(kind: str) -> None:
    (result,) = StoreSearch(request_of(kind), store_of(kind, good_reply(kind, request_of(kind)))).search(QUERY)
    assert (result.id, result.score, result.text) == ("d1", 0.5, "a roof")
    for path in all_places(kind):
        for odd in ODD:
            check(search_with(kind, path, odd))


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), place=st.integers(0, 100), odd=JSON)
def test_any_json_gives_one_sentence(kind: str, place: int, odd: Any) -> None:
    paths = all_places(kind)
    check(search_with(kind, paths[place % len(paths)], odd))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [None, True, {"a": 1}, [1], ""])
def test_result_without_usable_id_is_refused(kind: str, odd: Any) -> None:
    wanted = f"0.{request_of(kind).id}"
    place = next(path for path in all_places(kind) if ".".join(map(str, path)).endswith(wanted))
    with pytest.raises(InputError, match="has no id at"):
        search_with(kind, place, odd).search(QUERY)


@pytest.mark.parametrize("odd", [5, "x", True, ["x"], {"a": 1}])
def test_odd_responses_of_elasticsearch_are_named(odd: Any) -> None:
    reply = good_reply("elasticsearch", request_of("elasticsearch")) | {"responses": odd}
    with pytest.raises(InputError, match=r"another 'responses(\.0)?' than elasticsearch"):
        StoreSearch(request_of("elasticsearch"), store_of("elasticsearch", reply)).search(QUERY)


def test_tries_of_request_share_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that trickles in is given up after the time of one request, not of five."""
    clock, limits = [0.0], list[float]()
    store = HttpStore("http", "http://127.0.0.1:1", first_wait=0)

    def time_out(*arguments: Any) -> Any:
        limits.append(arguments[-1])
        clock[0] += min(40, arguments[-1])
        raise AttemptFailed("it timed out")

    monkeypatch.setattr(store._http, "request", time_out)
    monkeypatch.setattr("taugate.data.runs.presets.time.monotonic", lambda: clock[0])
    with pytest.raises(ConnectionError, match="2 attempts failed, the last one as it timed out; the same command"):
        store.send("/find", {}, {})
    assert limits == [_TIMEOUT, _TIMEOUT - 40]


def test_reply_of_the_first_stage_alone_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taugate's own service while its reranker is down: scores of both stages would be one run."""
    store, stages = HttpStore("http", "http://127.0.0.1:1", first_wait=0), ["first", "second"]

    def reply(*_: Any) -> Any:
        return 200, {}, json.dumps({"stage": stages.pop(0) if stages else "first", "results": []}).encode()

    monkeypatch.setattr(store._http, "request", reply)
    assert store.send("/search", {}, {}) == {"stage": "second", "results": []}
    with pytest.raises(ConnectionError, match="the second stage did not reply.*the same command resumes the run"):
        store.send("/search", {}, {})


DOCUMENTED = {"query_id": "q1", "query": 'Who "pays"?', "vector": [0.5, 0.25], "depth": 2}
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
    results = search_of("elasticsearch", recorded.url).search(DOCUMENTED)
    assert [(result.id, result.score, result.text) for result in results] == [
        ("d0", 3.5, "text 0"),
        ("d1", 1.25, "text 1"),
    ]
    assert (recorded.path, recorded.headers["Authorization"]) == ("/Documents/_search", "ApiKey secret")
    body = json.loads(recorded.body)
    assert body == {"query": {"match": {"text": 'Who "pays"?'}}, "size": 2, "_source": ["text"]}


def test_elasticsearch_vectors_are_searched(recorded: Recorded) -> None:
    recorded.reply = hits(0.9)
    search_of("elasticsearch", recorded.url, has_vectors=True).search(DOCUMENTED)
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
    first, second = search.search(DOCUMENTED)
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
        search_of("elasticsearch", recorded.url).search(DOCUMENTED)


def test_weaviate_is_searched_by_graphql(recorded: Recorded) -> None:
    listed = [{"text": "text 0", "_additional": {"id": "36ddd591-2dee-4e7e-a3cc-eb86d30a4303", "score": "0.85"}}]
    recorded.reply = {"data": {"Get": {"Documents": listed}}}
    (result,) = search_of("weaviate", recorded.url, has_vectors=True).search(DOCUMENTED)
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
        search_of(kind, recorded.url, path=path).search(DOCUMENTED)
    assert not recorded.body
