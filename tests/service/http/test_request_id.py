"""A caller's request id is returned, unless it could forge a log line or a header."""

import re

import pytest

from tests.service_process import ServiceProcess

HOSTILE = [
    b"",
    b"two words",
    b"tab\there",
    b"x" * 65,
    b'quo"te',
    b"semi;colon",
    b"a/b",
    b"%0a",
    b"{}",
    b"next\x85line",
    "å".encode(),
]


@pytest.mark.parametrize("given", ["a", "0af7651916cd43dd8448eb211c80319c", "A-b_c.9", "x" * 64])
@pytest.mark.parametrize("path", ["/livez", "/nope"])
def test_valid_request_id_is_returned(service: ServiceProcess, path: str, given: str) -> None:
    reply = service.http.get(path, headers={"X-Request-ID": given})
    assert reply.headers["X-Request-ID"] == given
    if reply.is_error:
        assert reply.json()["error"]["request_id"] == given


@pytest.mark.parametrize("given", HOSTILE)
def test_hostile_request_id_is_replaced(service: ServiceProcess, given: bytes) -> None:
    reply = service.http.get("/nope", headers={b"X-Request-ID": given})
    assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-ID"])
    assert reply.json()["error"]["request_id"] == reply.headers["X-Request-ID"]


def test_missing_request_id_is_generated(service: ServiceProcess) -> None:
    replies = [service.http.post("/search", json={"query": "permit"}) for _ in range(5)]
    assert len({reply.headers["X-Request-ID"] for reply in replies}) == 5
