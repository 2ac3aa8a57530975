"""Properties of all dialects: τ, null fields, keys, rates and caching."""

import json

import pytest

from tests.fake_encoder import MAX_LENGTH
from tests.service.api.dialects.asking import (
    AUTHORIZED,
    DIFY,
    FILTERED,
    OFF_TOPIC,
    OPENAI,
    QUERY,
    SLOW,
    ask,
    dify,
    openai,
    search,
    shown,
)
from tests.service_process import ServiceProcess


@pytest.mark.parametrize("threshold", [None, 0, 0.0])
def test_empty_threshold_keeps_calibrated_one(speaking: ServiceProcess, threshold: float | None) -> None:
    assert openai(speaking, query=OFF_TOPIC, ranking_options={"score_threshold": threshold})["data"] == []
    reply = dify(speaking, query=OFF_TOPIC, retrieval_setting={"top_k": 5, "score_threshold": threshold})
    assert (reply["records"], reply["reason"]) == ([], "all_below_threshold")


def test_explicit_nulls_mean_defaults(speaking: ServiceProcess) -> None:
    # LiteLLM sends the first four (tests/clients/litellm_calls.py); some clients, the others as well.
    nulls = dict.fromkeys(("filters", "max_num_results", "ranking_options", "rewrite_query"))
    options = {"ranking_options": {"ranker": None, "score_threshold": None}, "rewrite_query": True}
    assert [each["file_id"] for each in openai(speaking, **options)["data"]] == [
        each["file_id"] for each in openai(speaking)["data"]
    ]
    assert openai(speaking, ranking_options={"ranker": "auto"})["data"]
    texts = [[each["content"] for each in openai(speaking, **fields)["data"]] for fields in (nulls, {})]
    assert texts[0] and texts[0] == texts[1]
    nulls = dict.fromkeys(("retrieval_setting", "metadata_condition"))
    assert dify(speaking, **nulls)["records"] == dify(speaking)["records"]


def test_threshold_only_tightens(speaking: ServiceProcess) -> None:
    every = shown(search(speaking)["results"])
    assert len(every) > 1
    between = (every[0][1] + every[1][1]) / 2
    for threshold in (between, 1e-9, 1.0):
        kept = [each for each in every if each[1] >= threshold]
        page = openai(speaking, ranking_options={"score_threshold": threshold})
        assert [(each["file_id"], each["score"]) for each in page["data"]] == kept
        assert page["reason"] == (None if kept else "all_below_threshold")
        reply = dify(speaking, retrieval_setting={"top_k": 5, "score_threshold": threshold})
        assert [(each["metadata"]["id"], each["score"]) for each in reply["records"]] == kept


def test_result_count_is_limited(speaking: ServiceProcess) -> None:
    assert len(openai(speaking, max_num_results=1)["data"]) == 1
    assert len(dify(speaking, retrieval_setting={"top_k": 1})["records"]) == 1
    for number in (0, 51, "5", True):
        assert ask(speaking, OPENAI, {"query": QUERY, "max_num_results": number}).status_code == 422


def test_cached_reply_has_new_id(speaking: ServiceProcess) -> None:
    """Neither another threshold, nor another API, gets what is remembered of this one."""
    for ask_dialect, tightened in (
        (openai, {"ranking_options": {"score_threshold": 1.0}}),
        (dify, {"retrieval_setting": {"score_threshold": 1.0}}),
    ):
        asked = {"query": "m of years"}
        first, second = (ask_dialect(speaking, **asked) for _ in range(2))
        strict = ask_dialect(speaking, **asked, **tightened)
        ids = [reply["query_id"] for reply in (first, second, strict)]
        assert len({*ids}) == 3
        assert json.loads(json.dumps(first).replace(ids[0], ids[1])) == second
        assert first["reason"] is None and strict["reason"] == "all_below_threshold"
        assert search(speaking, **asked)["drift"] == {"alarm": False, "signals": []}
    assert all(each["query_id"] == page["query_id"] for page in [openai(speaking)] for each in page["data"])


@pytest.mark.parametrize("written", ["2", "2.0", "2e0"])
def test_integral_float_is_an_integer(speaking: ServiceProcess, written: str) -> None:
    headers = AUTHORIZED | {"Content-Type": "application/json"}
    body = f'{{"query": "permit", "max_num_results": {written}}}'
    found = speaking.http.post("/v1/vector_stores/current/search", content=body, headers=headers)
    assert found.status_code == 200, found.text
    body = f'{{"knowledge_id": "current", "query": "permit", "retrieval_setting": {{"top_k": {written}}}}}'
    found = speaking.http.post("/dify/retrieval", content=body, headers=headers)
    assert found.status_code == 200, found.text


def test_unknown_release_is_not_found(speaking: ServiceProcess) -> None:
    release = search(speaking)["release"]
    assert ask(speaking, f"/v1/vector_stores/{release}/search", {"query": QUERY}).status_code == 200
    reply = ask(speaking, "/v1/vector_stores/vs_other/search", {"query": QUERY})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    reply = ask(speaking, DIFY, {"knowledge_id": "other", "query": QUERY})
    assert (reply.status_code, reply.json()["error_code"], reply.json()["error"]["code"]) == (422, 2001, "invalid")
    for path in ("/v1/vector_stores/a/b/search", "/v1/vector_stores//search", "/v1/vector_stores/a/search/"):
        assert ask(speaking, path, {"query": QUERY}).status_code == 404


def test_disabled_dialect_is_404(service: ServiceProcess) -> None:
    for path in (OPENAI, DIFY):
        reply = service.http.post(path, json={"query": QUERY})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert path not in service.http.get("/openapi.json").json()["paths"]


def test_key_filter_applies(speaking: ServiceProcess) -> None:
    key = {"Authorization": f"Bearer {FILTERED}"}
    expected = [each["id"] for each in search(speaking, filter={"category": "kostnader"})["results"]]
    page = ask(speaking, OPENAI, {"query": QUERY}, key).json()
    assert expected and [each["file_id"] for each in page["data"]] == expected
    reply = ask(speaking, DIFY, {"knowledge_id": "current", "query": QUERY}, key).json()
    assert [each["metadata"]["id"] for each in reply["records"]] == expected


def test_key_rate_applies(speaking: ServiceProcess) -> None:
    key = {"Authorization": f"Bearer {SLOW}"}
    assert ask(speaking, OPENAI, {"query": QUERY}, key).status_code == 200
    for path in (OPENAI, DIFY):
        reply = ask(speaking, path, {"knowledge_id": "current", "query": QUERY}, key)
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, "rate_limited")
        assert int(reply.headers["Retry-After"]) > 10, "a query costs 100 s here"
    assert reply.json()["error_code"] == 429


def test_dialects_are_counted_by_route(speaking: ServiceProcess) -> None:
    openai(speaking)
    dify(speaking)
    routes = {"/v1/vector_stores/{vector_store_id}/search", DIFY}
    counted = speaking.http.get("/metrics", headers=AUTHORIZED).text
    assert all(f'taugate_requests_total{{code="200",route="{route}"}}' in counted for route in routes)
    assert routes <= {*speaking.http.get("/openapi.json").json()["paths"]}


LONG = " ".join([QUERY] * (MAX_LENGTH + 1))
UNREADABLE = "ทีมฟุตบอลใดชนะเลิศ"


def test_openai_long_query_is_truncated(speaking: ServiceProcess) -> None:
    assert openai(speaking, query=LONG)["truncated"] is True
    assert openai(speaking, query=[QUERY, LONG])["truncated"] is True
    assert "truncated" not in openai(speaking, query=QUERY)


def test_dify_long_query_is_truncated(speaking: ServiceProcess) -> None:
    assert dify(speaking, query=LONG)["truncated"] is True
    assert "truncated" not in dify(speaking, query=QUERY)


def test_unreadable_query_returns_reason(speaking: ServiceProcess) -> None:
    page, reply = openai(speaking, query=UNREADABLE), dify(speaking, query=UNREADABLE)
    assert (page["data"], page["reason"]) == ([], "unreadable")
    assert (reply["records"], reply["reason"]) == ([], "unreadable")
