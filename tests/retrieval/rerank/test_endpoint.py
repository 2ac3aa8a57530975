"""Rerankers behind an endpoint: both dialects, and every way in which a server can fail."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.errors import InputError, RerankerUnavailable
from taugate.retrieval.rerank.endpoint import RerankerEndpoint, endpoint_at
from tests.rerank_server import RerankServer

TEXTS = [f"text {'long ' * number}" for number in range(40)]


@pytest.fixture
def server() -> Iterator[RerankServer]:
    with RerankServer(lambda query, text: len(text) / 1000) as started:
        yield started


def endpoint(server: RerankServer, model: str | None = None, key_file: Path | None = None) -> RerankerEndpoint:
    return endpoint_at(model, server.url, key_file)


@pytest.mark.parametrize("model", [None, "reranker-v1"])
def test_scores_in_both_dialects_are_in_the_order_of_texts(server: RerankServer, model: str | None) -> None:
    scores = endpoint(server, model).score("query", TEXTS)
    np.testing.assert_allclose(scores, [len(text) / 1000 for text in TEXTS], rtol=1e-6)
    assert sorted(len(body.get("documents") or body["texts"]) for body, _ in server.requests) == [8, 32]
    assert {body.get("model") for body, _ in server.requests} == {model}


def test_known_pairs_are_not_requested_again(server: RerankServer) -> None:
    asked = endpoint(server)
    asked.score("query", TEXTS[:3])
    asked.score("query", [*TEXTS[:3], "another"])
    assert [body["texts"] for body, _ in server.requests] == [TEXTS[:3], ["another"]]
    asked.forget()
    asked.score("query", TEXTS[:1])
    assert len(server.requests) == 3


def test_key_is_read_from_its_file(server: RerankServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("secret\n")
    endpoint(server, None, file).score("query", ["text"])
    assert server.requests[0][1] == "Bearer secret"
    file.write_text("two words")
    with pytest.raises(InputError, match="TAUGATE_RERANK_KEY_FILE"):
        endpoint(server, None, file)


@pytest.mark.parametrize("url", ["", "ftp://host", "http://user:word@host", "http://host/?a=b"])
def test_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="TAUGATE_RERANK_URL"):
        endpoint_at(None, url, None)


@pytest.mark.parametrize("fault", ["stall", "drip", "flood", "nan", "short", "status"])
def test_fault_of_the_server_ends_by_the_deadline(server: RerankServer, fault: str) -> None:
    server.fault = fault
    asked, began = endpoint(server), time.monotonic()
    with pytest.raises(RerankerUnavailable):
        asked.score("query", TEXTS[:3], began + 0.3)
    server.fault = ""
    assert asked.score("query", TEXTS[:3]).shape == (3,)


def test_failure_that_passes_is_tried_again(server: RerankServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reply, server.fault = server.reply, "status"

    def failing_once(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        reply(handler, body)
        server.fault = ""

    monkeypatch.setattr(server, "reply", failing_once)
    assert endpoint(server).score("query", ["text"]).shape == (1,)
    assert len(server.requests) == 2
