"""Every bad request gets its status, its stable code and a helpful message that does not quote the query."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

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
    "deep arrays": b"[" * 60_000,
    "deep objects": b'{"filter":' * 6_000,
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
    "long unknown field": ({"x" * 60_000: 3}, "Extra inputs are not permitted"),
}
ELSEWHERE = [("GET", "/nope", 404, "not_found", "/nope"), ("GET", "/documents", 404, "not_found", "/openapi.json")] + [
    (method, path, 405, "method_not_allowed", f"{path} does not support {method}")
    for method, path in [("GET", "/search"), ("PUT", "/search/batch"), ("DELETE", "/release"), ("POST", "/livez")]
]


@pytest.fixture(scope="module")
def strict(releases: Path) -> Iterator[httpx.Client]:
    """A client of a service with small limits."""
    with ServiceProcess(releases, TAUGATE_MAX_K="10", TAUGATE_MAX_QUERY_CHARS="100") as process:
        yield process.ready().http


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
        content = f'{{"queries": [{",".join([item] * 200_000)}]}}'
        check(strict.post("/search/batch", content=content, headers=JSON), 413, "too_large", "more queries")


def test_trailing_slash_does_not_redirect(strict: httpx.Client) -> None:
    check(strict.post("/search/", json={"query": "a"}, headers={"Host": "203.0.113.1"}), 404, "not_found", "/search/")


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
