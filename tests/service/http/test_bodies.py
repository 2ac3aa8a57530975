"""Request bodies: errors with status, code and message, limits, and large bodies that are read in pieces."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from taugate.service.access.admission import Admission
from taugate.service.api.gate import GateBatchRequest, GateRequest
from taugate.service.api.schemas import BatchRequest
from taugate.service.errors import ApiError, Invalid, Overloaded
from taugate.service.http import bodies
from taugate.service.http.bodies import read_body, read_json, read_large_json
from taugate.service.http.operation import BodyLimit
from taugate.service.settings import Settings
from tests.service_process import ServiceProcess

PRIVATE = "zebra marmalade"  # stands for a query's text: no reply may repeat it
JSON = {"Content-Type": "application/json"}
NOT_JSON = {
    "truncated": b'{"query": "%s' % PRIVATE.encode(),
    "two objects": b'{"query": "%s"} {}' % PRIVATE.encode(),
    "not UTF-8": b'{"query": "zebra marmalade \xe9"}',
    "UTF-16": json.dumps({"query": PRIVATE}).encode("utf-16"),
    "half a surrogate pair": b'{"query": "%s \\ud800"}' % PRIVATE.encode(),
    "half a pair in a filter": b'{"query": "%s", "filter": {"\\ud800": 1}}' % PRIVATE.encode(),
    "deep arrays": b"[" * 40_000,
    "deep objects": b'{"filter":' * 4_000,
}
# What the client sent (fields beside the secret query), and a part of the message.
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"query": ""}, "query: a query needs text"),
    "blank": ({"query": " \t\n\u2028"}, "query: a query needs text"),
    "invisible": ({"query": "\u200b\ufeff\u00ad\u3164\u2800\ufe0f\0"}, "query: a query needs text"),
    "no text": ({"query": 7}, "query: "),
    "null": ({"query": None}, "query: "),
    "list": ({"query": [PRIVATE]}, "query: "),
    "long": ({"query": PRIVATE * 7}, "TAUGATE_MAX_QUERY_CHARS"),
    "NaN": ({"threshold": float("nan")}, "threshold: "),
    "infinite": ({"threshold": float("inf")}, "threshold: "),
    "beyond float32": ({"threshold": 1e39}, "threshold: "),
    "text threshold": ({"threshold": "0.5"}, "threshold: "),
    "k 0": ({"k": 0}, "k: "),
    "k negative": ({"k": -1}, "k: "),
    "k over": ({"k": 11}, "k: 11 is over 10 (TAUGATE_MAX_K)"),
    "k huge": ({"k": 10**4000}, "k: "),
    "k fraction": ({"k": 2.5}, "k: "),
    "k text": ({"k": "3"}, "k: "),
    "k boolean": ({"k": True}, "k: "),
    "min_results negative": ({"min_results": -1}, "min_results: "),
    "min_results over k": ({"k": 2, "min_results": 3}, "min_results: 3 is over k, which is 2"),
    "min_results over K": ({"min_results": 6}, "min_results: 6 is over k, which is 5"),
    "filter": ({"filter": {"category": [PRIVATE, None]}}, "filter: category: null"),
    "filter of nothing": ({"filter": {"nothing": PRIVATE}}, "filter: no document has the field nothing"),
    "unknown field": ({"top_k": 3}, "top_k: "),
    "long unknown field": ({"x" * 40_000: 3}, "Extra inputs are not permitted"),
    "a thousand faults": ({f"{number}": 1 for number in range(1000)}, "the body has 1000 errors"),
}
ELSEWHERE = [("GET", "/nope", 404, "not_found", "/nope"), ("POST", "/search/", 404, "not_found", "/search/")] + [
    (method, path, 405, "method_not_allowed", f"{path} does not support {method}")
    for method, path in [("GET", "/search"), ("PUT", "/search/batch"), ("DELETE", "/release"), ("POST", "/livez")]
]


BODY_LIMIT = 100_000


@pytest.fixture(scope="module")
def strict(releases: Path) -> Iterator[httpx.Client]:
    """A client of a service with small limits."""
    bodies = {"MAX_BODY_BYTES": BODY_LIMIT // 2, "MAX_BATCH_BYTES": BODY_LIMIT}
    limits = {"MAX_K": 10, "MAX_BATCH": 3, "MAX_QUERY_CHARS": 100, **bodies}
    with ServiceProcess(releases, **{f"TAUGATE_{name}": str(value) for name, value in limits.items()}) as process:
        yield process.ready().http


def check(reply: httpx.Response, status: int, code: str, fragment: str) -> None:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert reply.json() == {"error": {"code": code, "message": error["message"], "request_id": error["request_id"]}}
    assert fragment in error["message"]
    assert error["request_id"] == reply.headers["X-Request-ID"]
    assert "Traceback" not in reply.text
    assert not any(word in reply.text for word in PRIVATE.split())
    assert len(error["message"]) < 1000, "the message repeats what the client sent"


@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON.keys())
@pytest.mark.parametrize("path", ["/search", "/search/batch"])
def test_malformed_json_is_400(strict: httpx.Client, path: str, content: bytes) -> None:
    check(strict.post(path, content=content, headers=JSON), 400, "bad_json", "the body ")


@pytest.mark.parametrize(("fields", "fragment"), INVALID.values(), ids=INVALID.keys())
def test_invalid_field_is_422(strict: httpx.Client, fields: dict[str, Any], fragment: str) -> None:
    single = {"query": PRIVATE} | fields
    check(strict.post("/search", content=json.dumps(single), headers=JSON), 422, "invalid", fragment)


@pytest.mark.parametrize("fields", [fields for fields, _ in INVALID.values()], ids=INVALID.keys())
def test_invalid_batch_query_is_422(strict: httpx.Client, fields: dict[str, Any]) -> None:
    batch = {"queries": [PRIVATE, {"query": PRIVATE} | fields]}
    reply = strict.post("/search/batch", content=json.dumps(batch), headers=JSON)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")
    assert not any(word in reply.text for word in PRIVATE.split())


@pytest.mark.parametrize("query", ["", 7, {"query": ""}, {"query": "permit", "k": 0}, {"query": "permit", "top_k": 1}])
def test_batch_error_names_query(strict: httpx.Client, query: Any) -> None:
    message = strict.post("/search/batch", json={"queries": [PRIVATE, query]}).json()["error"]["message"]
    assert message.startswith("queries.1")
    assert "require_text" not in message


@pytest.mark.parametrize("body", [{"queries": []}, {"queries": PRIVATE}, {"query": PRIVATE}, {}, [], PRIVATE, None])
def test_malformed_batch_is_422(strict: httpx.Client, body: Any) -> None:
    check(strict.post("/search/batch", content=json.dumps(body), headers=JSON), 422, "invalid", "")


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_undeclared_json_is_422(strict: httpx.Client, headers: dict[str, str]) -> None:
    reply = strict.post("/search", content=json.dumps({"query": PRIVATE}), headers=headers)
    check(reply, 422, "invalid", "Content-Type: application/json")


@pytest.mark.parametrize(("method", "path", "status", "code", "fragment"), ELSEWHERE)
def test_unknown_path_or_method(
    strict: httpx.Client, method: str, path: str, status: int, code: str, fragment: str
) -> None:
    check(strict.request(method, path), status, code, fragment)


def test_huge_batch_is_refused_unread(strict: httpx.Client) -> None:
    for item in ("{}", '"a"'):
        content = f'{{"queries": [{",".join([item] * 20_000)}]}}'
        check(strict.post("/search/batch", content=content, headers=JSON), 413, "too_large", "more queries")


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [("/health", "/livez"), ("/serch", "/search"), ("/Search/", "/search"), ("/realease", "/release"), ("/nope", None)],
)
def test_unknown_path_suggests_nearest_one(strict: httpx.Client, path: str, suggestion: str | None) -> None:
    message = strict.get(path).json()["error"]["message"]
    between = "; " if suggestion is None else f"; did you mean {suggestion}? "
    assert message == f"there is no path {path}{between}/docs and /openapi.json list all paths"


@pytest.mark.parametrize(
    ("field", "suggestion"),
    [("top_k", "k"), ("q", "query"), ("min_result", "min_results"), ("treshold", "threshold"), ("zebra", None)],
)
def test_unknown_field_suggests_nearest_one(strict: httpx.Client, field: str, suggestion: str | None) -> None:
    query = {"query": PRIVATE, field: 3}
    for path, body in (("/search", query), ("/search/batch", {"queries": [PRIVATE, query]})):
        message = strict.post(path, json=body).json()["error"]["message"]
        name = field if path == "/search" else f"queries.1.{field}"
        expected = "" if suggestion is None else f"; did you mean {suggestion}?"
        assert message == f"{name}: Extra inputs are not permitted{expected}"


def padded(path: str, size: int) -> bytes:
    body = {"query": "permit"} if path == "/search" else {"queries": ["permit"]}
    return json.dumps(body).encode().ljust(size)


def in_pieces(content: bytes) -> Iterator[bytes]:
    """httpx sends an iterator chunked: no Content-Length announces its size."""
    for start in range(0, len(content), 1000):
        yield content[start : start + 1000]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "limit", "setting"),
    [("/search", BODY_LIMIT // 2, "TAUGATE_MAX_BODY_BYTES"), ("/search/batch", BODY_LIMIT, "TAUGATE_MAX_BATCH_BYTES")],
)
def test_body_over_limit_is_413(strict: httpx.Client, path: str, limit: int, setting: str, chunked: bool) -> None:
    for size, status in ((limit, 200), (limit + 1, 413), (20 * limit, 413)):
        content = padded(path, size)
        reply = strict.post(path, content=in_pieces(content) if chunked else content, headers=JSON)
        assert reply.status_code == status
    check(reply, 413, "too_large", f"over {limit} bytes ({setting})")


def test_batch_over_limit_is_413(strict: httpx.Client) -> None:
    assert strict.post("/search/batch", json={"queries": ["permit"] * 3}).status_code == 200
    reply = strict.post("/search/batch", json={"queries": ["permit"] * 4})
    check(reply, 413, "too_large", "4 queries, at most 3 per request (TAUGATE_MAX_BATCH)")


def test_query_at_limits_is_answered(strict: httpx.Client) -> None:
    reply = strict.post("/search", json={"query": "å" * 100, "k": 10})
    assert (reply.status_code, reply.json()["considered"]) == (200, 10)


LISTS: dict[type[BaseModel], Sequence[str]] = {
    GateRequest: ("results",),
    GateBatchRequest: ("queries", "results"),
    BatchRequest: ("queries",),
}


def results(number: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": f'd"[{place}\\', "score": 1 - place / (number + 1), **fields} for place in range(number)]


def outcomes(body: object, model: type[BaseModel]) -> list[object]:
    """What a body is read as, or the error: whole, and in pieces."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    read: list[object] = []
    for attempt in (
        lambda: read_json(content, model),
        lambda: asyncio.run(read_large_json(content, model, LISTS[model])),
    ):
        try:
            read.append(attempt())
        except ApiError as error:
            read.append((error.code, str(error)))
    return read


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"query": "a [query", "results": results(10_000, scores={"a": 0.5, "b": None}), "k": 3}, GateRequest),
        ({"results": results(300, text='"lorem", \\"ipsum\\" [{' * 99)}, GateRequest),
        ({"queries": [{"query": f"{n}", "results": results(n)} for n in (0, 3000, 1, 10_000, 2)]}, GateBatchRequest),
        ({"queries": ["text, [", *({"query": "q", "vector": [0.5] * 3000} for _ in range(20))]}, BatchRequest),
    ],
    ids=["gate", "texts", "gate batch", "search batch"],
)
def test_pieces_are_read_as_the_whole(body: object, model: type[BaseModel]) -> None:
    whole, pieces = outcomes(body, model)
    assert isinstance(whole, model)
    assert pieces == whole


FEW, BAD = results(2), [*results(7000), {"id": "a", "score": "x"}, *results(2000)]
VALID = json.dumps({"results": results(5000)}).encode()


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"results": BAD}, GateRequest),
        ({"queries": [{"results": FEW}, {"results": BAD}]}, GateBatchRequest),
        ({"queries": [{"results": FEW}, {"results": results(5000), "more": 1}]}, GateBatchRequest),
        ({"queries": ["a"] * 9000}, BatchRequest),
        (VALID[:-1] + b', "k": "3"}', GateRequest),
        (b'{"results": [' + b"[]," * 9000 + b"[]]}", GateRequest),
        (b'{"other": [' + b"[]," * 9000 + b"[]]}", GateRequest),
    ],
)
def test_fault_has_its_place_in_the_whole(body: object, model: type[BaseModel]) -> None:
    whole, pieces = outcomes(body, model)
    assert pieces == whole


@pytest.mark.parametrize(
    "body",
    [VALID[:-1], VALID + b"]", VALID[:-2] + b",]}", VALID.replace(b"}, {", b"}, , {", 1), b"[" * 9000],
    ids=["open", "closed twice", "comma", "nothing", "deep"],
)
def test_invalid_json_is_bad_json(body: bytes) -> None:
    assert [outcome[0] for outcome in outcomes(body, GateRequest)] == ["bad_json"] * 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"results": [{"id": "a", "score": 1, "scores": {f"n{n}": 0 for n in range(40_000)}}]}, "results.0"),
        ({"results": [*results(3), {"id": "a", "score": 1, "payload": [[]] * 9000}]}, "results.3"),
        ({"queries": [{"results": FEW}, {"results": [*FEW, {"x": [0] * 9000}]}]}, "queries.1.results.2"),
        ({"queries": ["a", {"query": "b", "filter": {"x": [[]] * 20_000}}]}, "queries.1"),
        ({"results": [], **{f"x{number}": 0 for number in range(9000)}}, "results"),
    ],
    ids=["names", "payload", "in a batch", "filter", "outside"],
)
def test_too_many_values_are_refused_before_objects_are_built(
    body: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "read_json", None)
    model = GateRequest if "results" in body else GateBatchRequest if "results" in place else BatchRequest
    with pytest.raises(Invalid, match=f"^{place}: has "):
        asyncio.run(read_large_json(json.dumps(body).encode(), model, LISTS[model]))


def test_event_loop_runs_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, turns = [], [0]

    def read(body: bytes, *more: Any) -> BaseModel:
        sizes.append(body.count(b","))
        return read_json(body, *more)

    async def others() -> None:
        while True:
            turns.append(len(sizes))
            await asyncio.sleep(0)

    async def scenario() -> None:
        working = asyncio.create_task(others())
        body = json.dumps({"results": results(10_000, scores={"a": 1, "b": 2})}).encode()
        await read_large_json(body, GateRequest, LISTS[GateRequest])
        working.cancel()

    monkeypatch.setattr(bodies, "read_json", read)
    asyncio.run(scenario())
    assert len(sizes) > 10
    assert max(sizes) <= bodies._PIECE_VALUES
    assert {*range(1, len(sizes))} <= {*turns}, "after each piece"


LIMIT, MOST, OF_A_KEY, BATCHES = 1000, 64, 8, 4
SETTINGS = Settings(
    releases=Path("nowhere"), max_body_bytes=LIMIT, max_batch_bytes=LIMIT, max_batch=1, queue_limit=32 * BATCHES
)


def _part(body: bytes, *, more_body: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more_body}


class Clients:
    """Each sends all of a body but its last byte, and that when it is told to."""

    def __init__(self) -> None:
        self._admission, self.rest = Admission(SETTINGS, lambda _: None), asyncio.Event()

    def begin(self, key: str | None = None, limit: BodyLimit = "max_body_bytes") -> asyncio.Task[None]:
        parts = iter([_part(b"a" * (LIMIT - 1), more_body=True), _part(b"a", more_body=False)])

        async def receive() -> Any:
            part = next(parts)
            if not part["more_body"]:
                await self.rest.wait()
            return part

        async def read() -> None:
            with self._admission.body(key, batch=limit == "max_batch_bytes") as count:
                assert await read_body(receive, SETTINGS.requests, limit, b"", count) == b"a" * LIMIT

        return asyncio.ensure_future(read())


async def over_total_limit(clients: Clients) -> None:
    slow = [clients.begin() for _ in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="too many large bodies are"):
        await clients.begin()
    slow.pop().cancel()
    await asyncio.sleep(0)
    clients.rest.set()
    await asyncio.gather(clients.begin(), *slow)


async def over_limit_of_key(clients: Clients) -> None:
    greedy = [clients.begin("greedy") for _ in range(OF_A_KEY)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="too many large bodies of the key greedy"):
        await clients.begin("greedy")
    others = [clients.begin(f"key {number}") for number in range(MOST - OF_A_KEY)]
    clients.rest.set()
    await asyncio.gather(*greedy, *others)


async def over_batches_of_key(clients: Clients) -> None:
    greedy = [clients.begin("greedy", "max_batch_bytes") for _ in range(BATCHES)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="this key has 4 batches in progress"):
        await clients.begin("greedy", "max_batch_bytes")
    other, single = clients.begin("other", "max_batch_bytes"), clients.begin("greedy")
    clients.rest.set()
    await asyncio.gather(*greedy, other, single)
    await clients.begin("greedy", "max_batch_bytes")


@pytest.mark.parametrize("scenario", [over_total_limit, over_limit_of_key, over_batches_of_key])
def test_bodies_in_progress_are_limited(scenario: Callable[[Clients], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(scenario(Clients()), 10)

    asyncio.run(run())


def test_error_for_a_caller_of_problem_details_is_one(strict: httpx.Client) -> None:
    headers = {"Accept": "application/problem+json, application/json;q=0.5"}
    reply = strict.post("/search", json={"query": ""}, headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (422, "application/problem+json")
    error = strict.post("/search", json={"query": ""}).json()["error"]
    assert reply.json() == {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": error["message"],
        "code": "invalid",
        "request_id": reply.headers["x-request-id"],
    }
