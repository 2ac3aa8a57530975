"""Replies over an engine are the same as in the process."""

import json
from pathlib import Path
from typing import Any

import pytest
import zaragoza_construction_faq

from engines_tests.service.pair import FILTERED, VISIBLE, WHOLE, Services, check_same, refused, same, stages
from taugate.service.api.schemas import SearchResponse
from tests.prometheus_process import until
from tests.service.api.dialects.asking import DIFY, OPENAI
from tests.service_process import ServiceProcess

QUESTIONS = [entry["q"] for entry in zaragoza_construction_faq.load(lang="en")][::45]
QUERY = QUESTIONS[0]
KEEP_ALL = {"threshold": -2.0}
FEW, MANY = {"category": "bygglov"}, {"category": {"ne": "bygglov"}}  # 20 documents, and all others


@pytest.mark.slow
def test_releases_differ_only_in_engine(services: Services) -> None:
    one, other = (each.http.get("/release").json() for each in (services.here, services.there))
    assert one["release"] != other["release"]
    assert "engine" not in one["manifest"] or one["manifest"]["engine"] is None
    assert (other["manifest"]["engine"]["kind"], other["manifest"]["engine"]["rows"]) == (services.kind, 503)
    references = [each.http.get("/release/reference").json() for each in (services.here, services.there)]
    check_same(*references)


@pytest.mark.parametrize(
    "fields",
    [{}, KEEP_ALL, {"threshold": 2.0}, {"threshold": 2.0, "min_results": 2}, {"k": 30}, {"include_text": False}],
)
def test_search_gives_same_reply(services: Services, fields: dict[str, Any]) -> None:
    replies = [same(services, "/search", {"query": query, **fields}) for query in QUESTIONS]
    for each in replies:
        SearchResponse.model_validate(each)
    assert not any("approximate" in each for each in replies)
    assert any(each["dropped"] for each in replies) or "threshold" in fields


def test_batch_gives_same_replies(services: Services) -> None:
    queries: list[Any] = [
        *QUESTIONS,
        {"query": QUERY, "k": 2},
        {"query": QUERY, "filter": FEW},
        {"query": QUERY, **KEEP_ALL},
    ]
    together = same(services, "/search/batch", {"queries": queries})["responses"]
    assert len(together) == len(queries)


@pytest.mark.parametrize(
    "query_filter",
    [
        FEW,
        {"category": ["bygglov", "nowhere"]},
        {"category": "nowhere"},
        {"year": {"gt": 3000}},
        {"day": {"gt": "2100-01-01"}},
    ],
)
def test_selective_filter_is_exact(services: Services, query_filter: dict[str, Any]) -> None:
    for query in QUESTIONS:
        reply = same(services, "/search", {"query": query, "filter": query_filter, **KEEP_ALL})
        assert "approximate" not in reply


def check_filtered(services: Services, query_filter: dict[str, Any], key: str = WHOLE) -> list[dict[str, Any]]:
    """Compare searches within a filter that many meet, of which one in 5 results may be another; returns replies."""
    replies = []
    for query in QUESTIONS:
        body = {"query": query, **KEEP_ALL, **({"filter": query_filter} if query_filter else {})}
        one, other = (each.json() for each in services.ask("/search", body, key))
        SearchResponse.model_validate(other)
        assert "approximate" not in one
        assert (other["calibrated"], other["considered"]) == (one["calibrated"], one["considered"])
        scores = {each["id"]: each["score"] for each in one["results"]}
        again = [each for each in other["results"] if each["id"] in scores]
        assert len(again) >= len(scores) - 1
        assert all(each["score"] == scores[each["id"]] for each in again)
        replies.append(other)
    return replies


def test_broad_filter_is_marked_approximate(services: Services) -> None:
    for query_filter in (MANY, {"$or": [{"category": "rot-avdrag"}, {"$not": {"category": "bygglov"}}]}):
        assert all(reply["approximate"] is True for reply in check_filtered(services, query_filter))


def test_key_filter_applies_to_engine(services: Services) -> None:
    check_filtered(services, {}, FILTERED)
    reply = same(services, "/search", {"query": QUERY, "k": 9, **KEEP_ALL}, FILTERED)
    assert {each["metadata"]["category"] for each in reply["results"]} == {VISIBLE}
    assert same(services, "/search", {"query": QUERY, "filter": FEW}, FILTERED)["results"] == []


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"filter": {"colour": "red"}},
        "filter: no document has the field colour; the fields are category, checked, day, tags, year",
    ),
    ({"filter": {"year": 2**53 + 1}}, "filter: year: an integer beyond 2⁵³, which an engine cannot compare"),
    ({"filter": {"$not": {"year": {"gt": -(2**60)}}}}, "filter: year: an integer beyond 2⁵³"),
    ({"group_by": "document"}, "group_by: the documents are in an engine, where results cannot be grouped"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_unsupported_request_is_refused(services: Services, fields: dict[str, Any], message: str) -> None:
    request = {"query": QUERY, **fields}
    assert message in refused(services, "/search", request)
    assert f"queries.1.{message}" in refused(services, "/search/batch", {"queries": [QUERY, request]})
    assert message in refused(services, "/explain", request | {"document_id": "x"})


def test_explanation_is_same(services: Services) -> None:
    for fields in ({}, {"k": 3, "min_results": 2}, {"threshold": 0.4, "k": 9}):
        listed = same(services, "/search", {"query": QUERY, "k": 9, **KEEP_ALL})["results"]
        depth = max(5, fields.get("k", 5))
        for each in listed[:depth]:
            same(services, "/explain", {"query": QUERY, "document_id": each["id"], **fields})
    within = same(services, "/search", {"query": QUERY, "filter": FEW, **KEEP_ALL})["results"][0]["id"]
    one, other = (
        each.json() for each in services.ask("/explain", {"query": QUERY, "filter": FEW, "document_id": within})
    )
    assert (one["ranked"], other["ranked"]) == (20, None)
    check_same(one | {"ranked": None}, other)
    hidden = same(services, "/explain", {"query": QUERY, "filter": MANY, "document_id": within})
    assert (hidden["rule"], hidden["filtered"]) == ("filter", True)
    nothing = same(services, "/explain", {"query": QUERY, "document_id": within}, FILTERED)
    assert nothing["rule"] == "key_filter"


def test_explaining_unlisted_document_is_refused(services: Services) -> None:
    last = same(services, "/search", {"query": QUERY, "k": 30, **KEEP_ALL})["results"][-1]["id"]
    request = {"query": QUERY, "document_id": last}
    assert "document_id: the search does not list this document" in refused(services, "/explain", request)
    same(services, "/explain", request | {"k": 30})
    unknown = services.ask("/explain", request | {"document_id": "nowhere"})
    assert [each.status_code for each in unknown] == [404, 404]


def test_dialects_give_same_replies(services: Services) -> None:
    for query in QUESTIONS:
        page = same(services, OPENAI, {"query": query, "max_num_results": 9}, rounded=True)
        assert page["object"] == "vector_store.search_results.page"
        same(services, DIFY, {"knowledge_id": "current", "query": query}, rounded=True)
    only = {"type": "eq", "key": "category", "value": "bygglov"}
    same(services, OPENAI, {"query": QUERY, "filters": only}, rounded=True)
    large = only | {"key": "year", "value": 2**53 + 1}
    assert "an integer beyond 2⁵³" in refused(services, OPENAI, {"query": QUERY, "filters": large})


def test_feedback_is_accepted_with_engine(services: Services) -> None:
    replies = [each.json() for each in services.ask("/search", {"query": QUERY, **KEEP_ALL})]
    shown = replies[1]["results"][1]["id"]
    for document, expected in ((shown, 202), ("nowhere", 422)):
        judged = [
            each.http.post("/feedback", json={"query_id": reply["query_id"], "document_id": document, "relevant": True})
            for each, reply in zip((services.here, services.there), replies, strict=True)
        ]
        assert [each.status_code for each in judged] == [expected, expected]
        check_judged(*judged)
    kept = next(
        (query, results[0]["id"])
        for query in QUESTIONS
        if (results := same(services, "/search", {"query": query})["results"])
    )
    for document, outcome in ((kept[1], "accepted"), (kept[1], "repeated"), ("nowhere", None)):
        request = {"query": kept[0], "document_id": document, "relevant": False}
        one, other = services.ask("/feedback", request)
        check_judged(one, other)
        assert other.json().get("status") == outcome


def check_judged(one: Any, other: Any) -> None:
    assert one.status_code == other.status_code
    check_same(one.json(), other.json())


def test_cached_reply_is_same(services: Services) -> None:
    request = {"query": "asked twice of both", **KEEP_ALL}
    first = same(services, "/search", request)
    before = stages(services.there)
    again = same(services, "/search", request)
    assert first["query_id"] != again["query_id"]
    check_same(first, again)
    assert stages(services.there) == before


@pytest.mark.slow
def test_redis_caches_only_query_vector(services: Services) -> None:
    request = {"query": "asked of two replicas", **KEEP_ALL}

    def kept(kind: str) -> int:
        return len(list(services.redis.client.scan_iter(f"taugate:*{services.release}*:{kind}:*")))

    before = kept("vector")
    first = same(services, "/search", request)
    until(lambda: kept("vector") > before)
    with ServiceProcess(services.folder, **services.settings) as replica:
        replica.http.headers.update(services.there.http.headers)
        assert not stages(replica.ready())["encode"]
        check_same(first, replica.http.post("/search", json=request).json())
        counted = stages(replica)
    assert not counted["encode"]
    assert counted["engine"]
    assert not kept("found")


def test_metrics_show_engine_stages(services: Services) -> None:
    same(services, "/search", {"query": "asked for the metrics"})
    here, there = stages(services.here), stages(services.there)
    assert {*there} - {*here} == {"engine", "rescore"}
    assert there["engine"] >= there["rescore"] > 0
    assert "taugate_engine_up 1.0" in services.there.http.get("/metrics").text
    assert "taugate_engine_up NaN" in services.here.http.get("/metrics").text


def logged(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_query_logs_are_same(services: Services) -> None:
    for query in QUESTIONS:
        same(services, "/search", {"query": query, "k": 4})
    last = {"query": "asked for the log", "filter": MANY, **KEEP_ALL}
    services.ask("/search", last)
    until(lambda: all(any(line.get("query") == last["query"] for line in logged(path)) for path in services.logs))
    one, other = (
        [line for line in logged(path) if line.get("query") in QUESTIONS and line.get("k") == 4]
        for path in services.logs
    )
    assert [each["query"] for each in other] == QUESTIONS
    assert any(each["shown"] for each in other)
    for local, remote in zip(one, other, strict=True):
        assert len(local.pop("random")) == len(remote.pop("random")) == 4  # of other documents each time
        check_same(local | {"at": 0}, remote | {"at": 0})
