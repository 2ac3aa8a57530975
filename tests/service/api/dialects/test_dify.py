"""Dify's external knowledge API: the probes of its form, and the requests of its workflows."""

import json
from typing import Any

import pytest

from tests.service.api.dialects.asking import AUTHORIZED, DIFY, QUERY, check_refused, dify, search, shown
from tests.service_process import ServiceProcess


def test_dify_returns_search_results(speaking: ServiceProcess) -> None:
    expected = search(speaking)
    reply = dify(speaking, retrieval_setting={"top_k": 5, "score_threshold": 0.0})
    assert [(each["metadata"]["id"], each["score"]) for each in reply["records"]] == shown(expected["results"])
    assert [each["content"] for each in reply["records"]] == [each["text"] for each in expected["results"]]
    assert all(each["title"] and None not in each["metadata"].values() for each in reply["records"])
    assert (reply["reason"], reply["release"]) == (None, expected["release"])


def compared(name: str | list[str], operator: str, value: Any) -> dict[str, Any]:
    return {"name": name, "comparison_operator": operator, "value": value}


def condition(*comparisons: dict[str, Any], **logical: str) -> dict[str, Any]:
    return {"metadata_condition": {"conditions": comparisons, **logical}}


def ids(records: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["id"] for each in records]


DIFY_FILTERS: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("and", [compared(["category"], "is", "kostnader")], {"category": "kostnader"}),
    ("and", [compared("category", "is not", "a")], {"category": {"ne": "a"}}),
    ("and", [compared(["category"], "in", "kostnader, x")], {"category": "kostnader"}),
    ("and", [compared(["category"], "not in", ["kostnader"])], {"category": {"nin": ["kostnader"]}}),
    ("or", [compared(["category"], operator, "kostnader") for operator in ("is", "is not")], {}),
]


@pytest.mark.parametrize(
    ("operator", "conditions", "query_filter"), DIFY_FILTERS, ids=lambda each: json.dumps(each)[:40]
)
def test_dify_filters_match_search_filters(
    speaking: ServiceProcess, operator: str, conditions: list[dict[str, Any]], query_filter: dict[str, Any]
) -> None:
    reply = dify(speaking, **condition(*conditions, logical_operator=operator))
    assert reply["records"]
    assert ids(reply["records"]) == [each["id"] for each in search(speaking, filter=query_filter)["results"]]


WRONG: list[tuple[dict[str, Any], str]] = [
    (compared("category", "contains", "b"), "category: the operator 'contains' cannot be translated"),
    (compared("category", ">", "b"), "metadata_condition: category: > needs a number"),
    (
        compared("created", "after", "yesterday"),
        "metadata_condition: created: after needs a number of seconds since 1970, or an ISO date such as 2024-05-31",
    ),
    (compared("category", "before", "2012-01-10"), "category holds texts, but the filter compares it with dates"),
    (compared("category", "after", 5), "category holds texts, but the filter compares it with numbers"),
    (compared("price", "is", "sesame"), "price holds numbers, but the filter compares it with texts"),
    ({"name": "category", "comparison_operator": "is"}, "'is' needs a value"),
    (compared("category", "not empty", None), "the operator 'not empty' cannot be translated"),
    (compared("category", "sesame", "b"), "category: this operator is none of Dify's; use is,"),
    (compared([], "is", "a"), "conditions.0.name: give the name of a field, or a list of names"),
    (
        compared("category", "in", ["a", {}]),
        "conditions.0.value: give a text, a finite number or a Boolean, or a list of them",
    ),
]


@pytest.mark.parametrize(("comparison", "message"), WRONG, ids=[each[1] for each in WRONG])
def test_untranslatable_dify_filter_is_refused(
    speaking: ServiceProcess, comparison: dict[str, Any], message: str
) -> None:
    reply = check_refused(speaking, DIFY, condition(comparison), message)
    assert (reply["error_code"], reply["error_msg"]) == (422, reply["error"]["message"])


@pytest.mark.parametrize("operator", ["=", "≠", ">", "before"])
def test_huge_integer_is_a_number(speaking: ServiceProcess, operator: str) -> None:
    reply = dify(speaking, **condition(compared("price", operator, 10**400)))
    assert reply["reason"] == (None if operator in {"≠", "before"} else "no_documents_match_filter")


# 1,326,153,600 s since 1970 is the beginning of 2012-01-10; Dify's form sends times so.
TIMES: list[tuple[str, str, Any, Any]] = [
    ("created", "before", "2012-01-10", "2012-01-10"),
    ("created", "after", "2012-01-10", "2012-01-10"),
    ("created", "after", "2012-01-10T01:00:00+02:00", "2012-01-09T23:00:00Z"),
    ("created", "before", 1_326_153_600, "2012-01-10T00:00:00Z"),
    ("created", "after", "1326153600", "2012-01-10T00:00:00Z"),
    ("changed", "before", 1_326_153_600, 1_326_153_600),
    ("changed", "after", "1326153600", 1_326_153_600),
]


@pytest.mark.parametrize(("name", "operator", "value", "bound"), TIMES, ids=str)
def test_dify_before_and_after_match_search(
    speaking: ServiceProcess, name: str, operator: str, value: Any, bound: Any
) -> None:
    reply = dify(speaking, retrieval_setting={"top_k": 50}, **condition(compared([name], operator, value)))
    found = search(speaking, filter={name: {"lt" if operator == "before" else "gt": bound}}, k=50)["results"]
    assert found
    assert ids(reply["records"]) == [each["id"] for each in found]


@pytest.mark.parametrize("operator", ["is", "is not"])
def test_dify_is_matches_date_by_seconds(speaking: ServiceProcess, operator: str) -> None:
    metadata = search(speaking)["results"][0]["metadata"]
    created, seconds = metadata["created"], metadata["changed"]
    query_filter = {"created": created if operator == "is" else {"ne": created}}
    expected = [each["id"] for each in search(speaking, filter=query_filter, k=50)["results"]]
    assert expected
    for value in (created, seconds, str(seconds), f"{created}T00:00:00Z"):
        reply = dify(speaking, retrieval_setting={"top_k": 50}, **condition(compared("created", operator, value)))
        assert ids(reply["records"]) == expected, value


# What Dify sends before it saves an endpoint: nothing, or since July 2026 (langgenius/dify#39410) a search of a
# knowledge base that nobody has named yet.
PROBES: list[dict[str, Any] | None] = [
    None,
    *(
        {"knowledge_id": name, "query": query, "retrieval_setting": {"top_k": 1, "score_threshold": 0.0}}
        for name, query in (("", ""), ("test", "test"), ("00000000-0000-0000-0000-000000000000", "ping"))
    ),
]


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_dify_probe_reports_bad_key(speaking: ServiceProcess, probe: dict[str, Any] | None) -> None:
    """Its form takes 403, 404 and 502 for a failure, and anything else for an endpoint and a key that work."""
    good = speaking.http.post(DIFY, json=probe, headers=AUTHORIZED)
    assert good.status_code not in {403, 404, 502} and good.status_code < 500
    assert set(good.json()) == {"error", "error_code", "error_msg"}
    bad = speaking.http.post(DIFY, json=probe, headers={"Authorization": "Bearer wrong"})
    assert (bad.status_code, bad.json()["error_code"], bad.json()["error"]["code"]) == (403, 1002, "forbidden")
    none = speaking.http.post(DIFY, json=probe)
    assert (none.status_code, none.json()["error_code"]) == (403, 1001)


def test_dify_request_variants_return_records(speaking: ServiceProcess) -> None:
    """The request as its service sends it: JSON that it has dumped itself, a threshold of 0.0, and maybe a null."""
    asked = {"retrieval_setting": {"top_k": 3, "score_threshold": 0.0}, "query": QUERY, "knowledge_id": "current"}
    filtered = condition(compared("category", "is not", "x"), logical_operator="and")
    for body in (asked, asked | {"metadata_condition": None}, asked | filtered):
        headers = AUTHORIZED | {"Content-Type": "application/json"}
        reply = speaking.http.post(DIFY, content=json.dumps(body), headers=headers)
        assert reply.status_code == 200, reply.text
        records = reply.json()["records"]
        assert ids(records) == [each["id"] for each in search(speaking, k=3)["results"]]
        # Dify reads these four of a record, and takes metadata for an object.
        assert all({*each} == {"content", "score", "title", "metadata"} for each in records)
