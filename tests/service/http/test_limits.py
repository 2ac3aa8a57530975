"""Limits accept requests that are exactly at them and refuse larger ones, before they are in memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service_process import ServiceProcess

BODY_LIMIT = 100_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def strict(releases: Path) -> Iterator[httpx.Client]:
    """A client of a service with small limits."""
    bodies = {"MAX_BODY_BYTES": BODY_LIMIT // 2, "MAX_BATCH_BYTES": BODY_LIMIT}
    limits = {"MAX_K": 10, "MAX_BATCH": 3, "MAX_QUERY_CHARS": 100, **bodies}
    with ServiceProcess(releases, **{f"TAUGATE_{name}": str(value) for name, value in limits.items()}) as process:
        yield process.ready().http


def padded(path: str, size: int) -> bytes:
    body = {"query": "permit"} if path == "/search" else {"queries": ["permit"]}
    return json.dumps(body).encode().ljust(size)


def in_pieces(content: bytes) -> Iterator[bytes]:
    """httpx sends an iterator chunked: no Content-Length announces its size."""
    for start in range(0, len(content), 1000):
        yield content[start : start + 1000]


def code(reply: httpx.Response) -> str:
    return reply.json()["error"]["code"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "limit", "setting"),
    [("/search", BODY_LIMIT // 2, "TAUGATE_MAX_BODY_BYTES"), ("/search/batch", BODY_LIMIT, "TAUGATE_MAX_BATCH_BYTES")],
)
def test_body_over_limit_is_413(strict: httpx.Client, path: str, limit: int, setting: str, chunked: bool) -> None:
    for size, status in ((limit, 200), (limit + 1, 413), (100 * limit, 413)):
        content = padded(path, size)
        reply = strict.post(path, content=in_pieces(content) if chunked else content, headers=JSON)
        assert reply.status_code == status
    assert code(reply) == "too_large"
    assert f"over {limit} bytes ({setting})" in reply.json()["error"]["message"]


def test_batch_over_limit_is_413(strict: httpx.Client) -> None:
    assert strict.post("/search/batch", json={"queries": ["permit"] * 3}).status_code == 200
    reply = strict.post("/search/batch", json={"queries": ["permit"] * 4})
    assert (reply.status_code, code(reply)) == (413, "too_large")
    assert "4 queries, at most 3 per request (TAUGATE_MAX_BATCH)" in reply.json()["error"]["message"]


def test_k_and_query_limits(strict: httpx.Client) -> None:
    reply = strict.post("/search", json={"query": "å" * 100, "k": 10})
    assert (reply.status_code, reply.json()["considered"]) == (200, 10)
    assert strict.post("/search", json={"query": "å" * 101}).status_code == 422
    assert strict.post("/search", json={"query": "å", "k": 11}).status_code == 422
