"""OpenAI's search of a vector store, as its SDKs and LiteLLM send it."""

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, NotFoundError, OpenAI
from openai.types import VectorStoreSearchResponse

from tests.service.api.dialects.asking import (
    ANOTHER,
    KEY,
    OFF_TOPIC,
    OPENAI,
    QUERY,
    ask,
    check_refused,
    openai,
    search,
    shown,
)
from tests.service_process import ServiceProcess


def test_openai_returns_search_results(speaking: ServiceProcess) -> None:
    expected = search(speaking)
    page = openai(speaking)
    assert [(each["file_id"], each["score"]) for each in page["data"]] == shown(expected["results"])
    assert page["object"] == "vector_store.search_results.page"
    assert (page["search_query"], page["has_more"], page["next_page"]) == ([QUERY], False, None)
    assert (page["reason"], page["release"]) == (None, expected["release"])
    first = page["data"][0]
    assert first["content"] == [{"type": "text", "text": expected["results"][0]["text"]}]
    assert first["filename"] and first["query_id"] == page["query_id"]
    judgement = {"query_id": page["query_id"], "document_id": first["file_id"], "relevant": True}
    assert ask(speaking, "/feedback", judgement).status_code == 202


def test_several_queries_are_merged(speaking: ServiceProcess) -> None:
    queries = [QUERY, OFF_TOPIC, ANOTHER]
    best: dict[str, float] = {}
    for query in queries:
        for name, score in shown(search(speaking, query=query)["results"]):
            best[name] = max(score, best.get(name, 0))
    page = openai(speaking, query=queries)
    found = [(each["file_id"], each["score"]) for each in page["data"]]
    assert found == sorted(best.items(), key=lambda each: -each[1])[:5]
    assert page["query_id"] is None and page["search_query"] == queries
    assert openai(speaking, query=[OFF_TOPIC, OFF_TOPIC])["reason"] == "all_below_threshold"


def compared(kind: str, value: Any, key: str = "category") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


def joined(kind: str, *filters: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "filters": filters}


IS, IS_NOT = (compared(kind, "kostnader") for kind in ("eq", "ne"))
OPENAI_FILTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (IS, {"category": "kostnader"}),
    (IS_NOT, {"category": {"ne": "kostnader"}}),
    (compared("in", ["kostnader", "x"]), {"category": ["kostnader", "x"]}),
    (compared("nin", ["kostnader"]), {"category": {"nin": ["kostnader"]}}),
    (joined("and", compared("ne", "a"), IS), {"category": "kostnader"}),
    (joined("or", IS, joined("and", IS_NOT)), {}),
]


@pytest.mark.parametrize(("translated", "query_filter"), OPENAI_FILTERS, ids=lambda each: json.dumps(each)[:40])
def test_openai_filters_match_search_filters(
    speaking: ServiceProcess, translated: dict[str, Any], query_filter: dict[str, Any]
) -> None:
    page = openai(speaking, filters=translated)
    assert page["data"], "a filter that nothing meets shows nothing"
    assert [each["file_id"] for each in page["data"]] == [
        each["id"] for each in search(speaking, filter=query_filter)["results"]
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"filters": compared("like", "a")}, "filters: category: this filter cannot be translated; use eq, ne,"),
    ({"filters": {}}, "filters: this filter cannot be translated"),
    (
        {"filters": compared("eq", {"sesame": 1})},
        "filters.comparison.value: give a text, a finite number or a Boolean, or a list of them",
    ),
    (
        {"filters": joined("and", compared("eq", "a"), {"type": "not"})},
        "filters.compound.filters.1: this filter cannot be translated; use eq, ne,",
    ),
    ({"filters": compared("in", "a")}, "filters: category: in needs a list"),
    ({"filters": compared("eq", ["a"])}, "filters: category: eq needs one value"),
    ({"filters": compared("eq", "a", "zebra")}, "no document has the field zebra"),
    ({"filters": compared("gt", "a")}, "filters: category: gt needs a finite"),
    ({"filters": compared("eq", "a", "$or")}, "filters: $or is an operator, not a field"),
    ({"query": " "}, "query: a query needs text"),
    ({"query": "\u00ad\u3164"}, "query: a query needs text"),
    ({"query": []}, "query: give a text, or a list of texts"),
    ({"query": ["a", " "]}, "query: a query needs text"),
    ({"query": 7}, "query: give a text, or a list of texts"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[each[1] for each in WRONG])
def test_untranslatable_openai_filter_is_refused(
    speaking: ServiceProcess, fields: dict[str, Any], message: str
) -> None:
    check_refused(speaking, OPENAI, fields, message)


def test_openai_requires_key(speaking: ServiceProcess) -> None:
    assert speaking.http.post(OPENAI).status_code == 401


def test_openai_sdk_searches(speaking: ServiceProcess) -> None:
    expected = shown(search(speaking)["results"])
    with OpenAI(base_url=f"{str(speaking.http.base_url).rstrip('/')}/v1", api_key=KEY, max_retries=0) as client:
        page = client.vector_stores.search("current", query=QUERY, max_num_results=5)
        assert [(each.file_id, each.score) for each in page] == expected
        assert [part.text for part in page.data[0].content]
        # The SDK takes whatever comes: its models say what was published.
        assert {*page.model_extra} == {"search_query", "has_more", "next_page", "reason", "query_id", "release"}
        for each in page:
            VectorStoreSearchResponse.model_validate(each.model_dump(), strict=True)
            assert {*each.model_extra} == {"query_id"}
        query_filter = {"type": "eq", "key": "category", "value": "nowhere"}
        empty = client.vector_stores.search("current", query=QUERY, filters=query_filter)  # type: ignore[arg-type]
        assert empty.data == [] and empty.model_extra["reason"] == "no_documents_match_filter"
        with pytest.raises(NotFoundError, match="name `current`"):
            client.vector_stores.search("vs_1", query=QUERY)
    with (
        pytest.raises(AuthenticationError),
        OpenAI(base_url=f"{str(speaking.http.base_url).rstrip('/')}/v1", api_key="no") as client,
    ):
        client.vector_stores.search("current", query=QUERY)


async def _search(url: str) -> list[str]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        page = await client.vector_stores.search("current", query=[QUERY, ANOTHER])
        return [each.file_id async for each in page]


def test_async_openai_sdk_searches(speaking: ServiceProcess) -> None:
    found = asyncio.run(_search(str(speaking.http.base_url).rstrip("/")))
    assert found == [each["file_id"] for each in openai(speaking, query=[QUERY, ANOTHER])["data"]]
