"""Replies to queries that are too long for the encoder, or unreadable, say so and are not calibrated."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.retrieval.query import Query
from taugate.service.api.schemas import SearchResponse
from taugate.service.api.search import ExplainResponse
from taugate.service.pipeline.reply import flagged_vector, read_vector
from tests.fake_encoder import MAX_LENGTH
from tests.prometheus_process import until
from tests.service.drift.traffic import FastDriftService
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

QUERY = "What does a building permit cost?"
WINDOW = " ".join(["permit"] * MAX_LENGTH)
LONG = WINDOW + " cost"
UNREADABLE = "ทีมฟุตบอลใดชนะเลิศ 2024"
UNREADABLE_TOO = "ใครเป็นผู้ทำประตูสูงสุดในการแข่งขัน"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "queries.log"


@pytest.fixture(scope="module")
def answering(releases: Path, log: Path) -> Iterator[ServiceProcess]:
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(log), TAUGATE_QUERY_LOG_TEXTS="true") as process:
        yield process.ready()


def search(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    reply = service.http.post("/search", json=fields)
    assert reply.status_code == 200, reply.text
    SearchResponse.model_validate_json(reply.content, strict=True)
    return reply.json()


def test_short_query_has_no_truncated_field(answering: ServiceProcess) -> None:
    for query in (QUERY, WINDOW):
        reply = search(answering, query=query, min_results=0)
        assert not {"truncated", "not_comparable"} & {*reply}
        assert reply["calibrated"]


def test_long_query_is_truncated(answering: ServiceProcess) -> None:
    before = scrape(answering)
    first, cached = search(answering, query=LONG), search(answering, query=LONG)
    other_form = search(answering, query=LONG, include_text=False)
    for reply in (first, cached, other_form):
        assert (reply["truncated"], reply["not_comparable"], reply["calibrated"]) == (True, "truncated", False)
    moved = scrape(answering) - before
    assert moved["taugate_queries_truncated_total{}"] == 3
    assert moved["taugate_cache_requests_total{hit}"] == 2


def test_batch_marks_truncated_queries(answering: ServiceProcess) -> None:
    body = {"queries": [QUERY, {"query": LONG, "k": 3}, UNREADABLE, WINDOW]}
    replies = answering.http.post("/search/batch", json=body).json()["responses"]
    assert [each.get("truncated") for each in replies] == [None, True, None, None]
    assert [each["calibrated"] for each in replies] == [True, False, False, True]
    assert [each["reason"] == "unreadable" for each in replies] == [False, False, True, False]


def test_unknown_script_is_unreadable(answering: ServiceProcess) -> None:
    before = scrape(answering)
    for query in (UNREADABLE, UNREADABLE_TOO, "\ue000"):
        for _ in range(2):
            reply = search(answering, query=query)
            assert (reply["results"], reply["reason"], reply["calibrated"]) == ([], "unreadable", False)
            assert "truncated" not in reply
    assert (scrape(answering) - before)["taugate_empty_responses_total{unreadable}"] == 6


def test_unreadable_query_with_min_results(answering: ServiceProcess) -> None:
    reply = search(answering, query=UNREADABLE, min_results=2)
    assert [each["below_threshold"] for each in reply["results"]] == [True, True]
    assert (reply["reason"], reply["calibrated"]) == (None, False)


def test_unreadable_query_with_own_threshold(answering: ServiceProcess) -> None:
    reply = search(answering, query=UNREADABLE, threshold=-2.0)
    assert (len(reply["results"]), reply["calibrated"]) == (5, False)


def test_few_unknown_words_are_accepted(answering: ServiceProcess) -> None:
    reply = search(answering, query=f"{QUERY} 🏗", min_results=0)
    assert reply["calibrated"]
    assert reply["reason"] != "unreadable"


def test_explain_marks_truncated_query(answering: ServiceProcess) -> None:
    document = search(answering, query=LONG, threshold=-2.0)["results"][0]["id"]
    explained = {}
    for query in (QUERY, LONG, UNREADABLE):
        reply = answering.http.post("/explain", json={"query": query, "document_id": document})
        assert reply.status_code == 200, reply.text
        ExplainResponse.model_validate_json(reply.content, strict=True)
        explained[query] = reply.json()
    assert "query_truncated" not in explained[QUERY]
    assert explained[LONG]["query_truncated"] is True
    assert "reads only the beginning of the query" in explained[LONG]["why"]
    unreadable = search(answering, query=UNREADABLE, threshold=-2.0)["results"][0]["id"]
    reply = answering.http.post("/explain", json={"query": UNREADABLE, "document_id": unreadable}).json()
    assert (reply["rule"], reply["kept"]) == ("unreadable", False)
    assert "knows less than half of its characters" in reply["why"]


@pytest.mark.slow
def test_drift_ignores_truncated_queries(answering: ServiceProcess, log: Path) -> None:
    ids = {query: search(answering, query=query)["query_id"] for query in (QUERY, LONG, UNREADABLE)}
    until(lambda: log.exists() and ids[UNREADABLE] in log.read_text(encoding="utf-8"))
    logged = {line.record.query_id: line.record for line in read_query_log([log])}
    found = {}
    for query, name in ids.items():
        record = logged[name]
        assert isinstance(record, LoggedQuery)
        found[query] = (record.not_comparable, bool(record.topk))
    assert found == {QUERY: (None, True), LONG: ("truncated", False), UNREADABLE: ("unreadable", False)}


@pytest.mark.parametrize("flags", [{"truncated": True}, {"unreadable": True}, {}], ids=str)
def test_cached_vector_keeps_how_the_query_was_read(flags: dict[str, bool]) -> None:
    query, vector = Query(QUERY, 5), np.zeros(4, dtype=np.float32)
    read = read_vector(flagged_vector(replace(query, **flags), vector), query, 4)
    assert read is not None
    assert read[0] == replace(query, **flags)
