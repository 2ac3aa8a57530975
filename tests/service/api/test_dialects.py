"""Dialects: the search as OpenAI's SDKs and Dify ask for it, with the calibrated threshold always in force."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, NotFoundError, OpenAI
from openai.types import VectorStoreSearchResponse

from taugate.cli import main as cli
from tests.service_process import ServiceProcess

# With the encoder of the tests, short queries are similar to much, and long ones to little: τ lies between them.
QUERY, ANOTHER, OFF_TOPIC = "pizza", "pizza zebra recipe", "Who wrote the first opera in this language?"
KEY, FILTERED, SLOW = ("tg_" + letter * 40 for letter in "kfs")
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
OPENAI, DIFY = "/v1/vector_stores/current/search", "/dify/retrieval"


@pytest.fixture(scope="module")
def speaking(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("dialects")
    releases, keys = folder / "releases", folder / "keys.json"
    calibrate = ["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder)]
    assert cli.main([*calibrate, "--policy", "similarity", "--tau", "0.45"]) == 0
    more: dict[str, dict[str, Any]] = {
        KEY: {"scopes": ["search", "feedback", "metrics"]},
        FILTERED: {"filter": {"category": "kostnader"}},
        SLOW: {"queries_per_second": 0.01},
    }
    entries = [
        {"name": key[3], "sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": ["search"], **fields}
        for key, fields in more.items()
    ]
    keys.write_text(json.dumps(entries))
    with ServiceProcess(releases, TAUGATE_DIALECTS="openai,dify", TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


def ask(service: ServiceProcess, path: str, body: Any, headers: dict[str, str] = AUTHORIZED) -> Any:
    return service.http.post(path, json=body, headers=headers)


def search(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    return ask(service, "/search", {"query": QUERY, **fields}).json()


def openai(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    reply = ask(service, OPENAI, {"query": QUERY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def dify(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    reply = ask(service, DIFY, {"knowledge_id": "current", "query": QUERY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def shown(results: list[dict[str, Any]]) -> list[tuple[str, float]]:
    scores = (each["score"] if each["relevance"] is None else each["relevance"] for each in results)
    return [(each["id"], max(0.0, score)) for each, score in zip(results, scores, strict=True)]


def test_openai_finds_what_search_finds(speaking: ServiceProcess) -> None:
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


def test_dify_finds_what_search_finds(speaking: ServiceProcess) -> None:
    expected = search(speaking)
    reply = dify(speaking, retrieval_setting={"top_k": 5, "score_threshold": 0.0})
    assert [(each["metadata"]["id"], each["score"]) for each in reply["records"]] == shown(expected["results"])
    assert [each["content"] for each in reply["records"]] == [each["text"] for each in expected["results"]]
    assert all(each["title"] and None not in each["metadata"].values() for each in reply["records"])
    assert (reply["reason"], reply["release"]) == (None, expected["release"])


@pytest.mark.parametrize("threshold", [None, 0, 0.0])
def test_no_threshold_is_the_calibrated_one(speaking: ServiceProcess, threshold: float | None) -> None:
    assert openai(speaking, query=OFF_TOPIC, ranking_options={"score_threshold": threshold})["data"] == []
    reply = dify(speaking, query=OFF_TOPIC, retrieval_setting={"top_k": 5, "score_threshold": threshold})
    assert (reply["records"], reply["reason"]) == ([], "all_below_threshold")


def test_explicit_nulls(speaking: ServiceProcess) -> None:
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


def test_a_threshold_only_tightens(speaking: ServiceProcess) -> None:
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


def test_several_queries_are_cut_alone_and_merged(speaking: ServiceProcess) -> None:
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


def test_the_number_of_results(speaking: ServiceProcess) -> None:
    assert len(openai(speaking, max_num_results=1)["data"]) == 1
    assert len(dify(speaking, retrieval_setting={"top_k": 1})["records"]) == 1
    for number in (0, 51, "5", True):
        assert ask(speaking, OPENAI, {"query": QUERY, "max_num_results": number}).status_code == 422


OPENAI_FILTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "eq", "key": "category", "value": "kostnader"}, {"category": "kostnader"}),
    ({"type": "ne", "key": "category", "value": "kostnader"}, {"category": {"ne": "kostnader"}}),
    ({"type": "in", "key": "category", "value": ["kostnader", "x"]}, {"category": ["kostnader", "x"]}),
    ({"type": "nin", "key": "category", "value": ["kostnader"]}, {"category": {"nin": ["kostnader"]}}),
    (
        {
            "type": "and",
            "filters": [
                {"type": "ne", "key": "category", "value": "a"},
                {"type": "eq", "key": "category", "value": "kostnader"},
            ],
        },
        {"category": "kostnader"},
    ),
    (
        {
            "type": "or",
            "filters": [
                {"type": "eq", "key": "category", "value": "kostnader"},
                {"type": "and", "filters": [{"type": "ne", "key": "category", "value": "kostnader"}]},
            ],
        },
        {},
    ),
]


@pytest.mark.parametrize(("translated", "wanted"), OPENAI_FILTERS, ids=lambda each: json.dumps(each)[:40])
def test_filters_of_openai(speaking: ServiceProcess, translated: dict[str, Any], wanted: dict[str, Any]) -> None:
    page = openai(speaking, filters=translated)
    assert page["data"], "a filter that nothing meets shows nothing"
    assert [each["file_id"] for each in page["data"]] == [
        each["id"] for each in search(speaking, filter=wanted)["results"]
    ]


DIFY_FILTERS: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("and", [{"name": ["category"], "comparison_operator": "is", "value": "kostnader"}], {"category": "kostnader"}),
    ("and", [{"name": "category", "comparison_operator": "is not", "value": "a"}], {"category": {"ne": "a"}}),
    ("and", [{"name": ["category"], "comparison_operator": "in", "value": "kostnader, x"}], {"category": "kostnader"}),
    (
        "and",
        [{"name": ["category"], "comparison_operator": "not in", "value": ["kostnader"]}],
        {"category": {"nin": ["kostnader"]}},
    ),
    (
        "or",
        [
            {"name": ["category"], "comparison_operator": "is", "value": "kostnader"},
            {"name": ["category"], "comparison_operator": "is not", "value": "kostnader"},
        ],
        {},
    ),
]


@pytest.mark.parametrize(("operator", "conditions", "wanted"), DIFY_FILTERS, ids=lambda each: json.dumps(each)[:40])
def test_filters_of_dify(
    speaking: ServiceProcess, operator: str, conditions: list[dict[str, Any]], wanted: dict[str, Any]
) -> None:
    reply = dify(speaking, metadata_condition={"logical_operator": operator, "conditions": conditions})
    assert reply["records"]
    assert [each["metadata"]["id"] for each in reply["records"]] == [
        each["id"] for each in search(speaking, filter=wanted)["results"]
    ]


def compared(comparison: dict[str, Any]) -> dict[str, Any]:
    return {"metadata_condition": {"conditions": [comparison]}}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        OPENAI,
        {"filters": {"type": "like", "key": "category", "value": "a"}},
        "filters: category: this filter cannot be translated; use eq, ne,",
    ),
    (OPENAI, {"filters": {}}, "filters: this filter cannot be translated"),
    (
        OPENAI,
        {"filters": {"type": "eq", "key": "category", "value": {"sesame": 1}}},
        "filters.comparison.value: give a text, a finite number or a Boolean, or a list of them",
    ),
    (
        OPENAI,
        {"filters": {"type": "and", "filters": [{"type": "eq", "key": "a", "value": "a"}, {"type": "not"}]}},
        "filters.compound.filters.1: this filter cannot be translated; use eq, ne,",
    ),
    (OPENAI, {"filters": {"type": "in", "key": "category", "value": "a"}}, "filters: category: in needs a list"),
    (OPENAI, {"filters": {"type": "eq", "key": "category", "value": ["a"]}}, "filters: category: eq needs one value"),
    (OPENAI, {"filters": {"type": "eq", "key": "zebra", "value": "a"}}, "no document has the field zebra"),
    (OPENAI, {"filters": {"type": "gt", "key": "category", "value": "a"}}, "filters: category: gt needs a finite"),
    (OPENAI, {"filters": {"type": "eq", "key": "$or", "value": "a"}}, "filters: $or combines filters"),
    (OPENAI, {"query": " "}, "query: a query needs text"),
    (OPENAI, {"query": []}, "query: give a text, or a list of texts"),
    (OPENAI, {"query": ["a", " "]}, "query: a query needs text"),
    (OPENAI, {"query": 7}, "query: give a text, or a list of texts"),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": "contains", "value": "b"}),
        "metadata_condition: category: the operator 'contains' cannot be translated",
    ),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": ">", "value": "b"}),
        "metadata_condition: category: > needs a number",
    ),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": "is"}),
        "'is' needs a value",
    ),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": "not empty", "value": None}),
        "the operator 'not empty' cannot be translated",
    ),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": "sesame", "value": "b"}),
        "metadata_condition: category: this operator is none of Dify's; use is,",
    ),
    (
        DIFY,
        compared({"name": [], "comparison_operator": "is", "value": "a"}),
        "conditions.0.name: give the name of a field, or a list of names",
    ),
    (
        DIFY,
        compared({"name": "category", "comparison_operator": "in", "value": ["a", {}]}),
        "conditions.0.value: give a text, a finite number or a Boolean, or a list of them",
    ),
]


@pytest.mark.parametrize(("path", "fields", "message"), WRONG, ids=[each[2] for each in WRONG])
def test_what_cannot_be_translated(speaking: ServiceProcess, path: str, fields: dict[str, Any], message: str) -> None:
    reply = ask(speaking, path, {"knowledge_id": "current", "query": QUERY, **fields})
    assert reply.status_code == 422, reply.text
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")
    assert message in reply.json()["error"]["message"]
    assert "sesame" not in reply.text
    if path == DIFY:
        assert reply.json()["error_code"] == 422 and reply.json()["error_msg"] == reply.json()["error"]["message"]


@pytest.mark.parametrize("operator", ["=", "≠", ">"])
def test_an_integer_of_any_length_is_a_number(speaking: ServiceProcess, operator: str) -> None:
    reply = dify(speaking, **compared({"name": "category", "comparison_operator": operator, "value": 10**400}))
    assert reply["reason"] == (None if operator == "≠" else "no_documents_match_filter")


def test_openai_asks_for_a_key(speaking: ServiceProcess) -> None:
    assert speaking.http.post(OPENAI).status_code == 401


def test_only_the_release_in_service(speaking: ServiceProcess) -> None:
    release = search(speaking)["release"]
    assert ask(speaking, f"/v1/vector_stores/{release}/search", {"query": QUERY}).status_code == 200
    reply = ask(speaking, "/v1/vector_stores/vs_other/search", {"query": QUERY})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    reply = ask(speaking, DIFY, {"knowledge_id": "other", "query": QUERY})
    assert (reply.status_code, reply.json()["error_code"], reply.json()["error"]["code"]) == (422, 2001, "invalid")
    for path in ("/v1/vector_stores/a/b/search", "/v1/vector_stores//search", "/v1/vector_stores/a/search/"):
        assert ask(speaking, path, {"query": QUERY}).status_code == 404


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
def test_dify_tries_a_key(speaking: ServiceProcess, probe: dict[str, Any] | None) -> None:
    """Its form takes 403, 404 and 502 for a failure, and anything else for an endpoint and a key that work."""
    good = speaking.http.post(DIFY, json=probe, headers=AUTHORIZED)
    assert good.status_code not in {403, 404, 502} and good.status_code < 500
    assert set(good.json()) == {"error", "error_code", "error_msg"}
    bad = speaking.http.post(DIFY, json=probe, headers={"Authorization": "Bearer wrong"})
    assert (bad.status_code, bad.json()["error_code"], bad.json()["error"]["code"]) == (403, 1002, "forbidden")
    none = speaking.http.post(DIFY, json=probe)
    assert (none.status_code, none.json()["error_code"]) == (403, 1001)


def test_dify_retrieves(speaking: ServiceProcess) -> None:
    """The request as its service sends it: JSON that it has dumped itself, a threshold of 0.0, and maybe a null."""
    asked = {"retrieval_setting": {"top_k": 3, "score_threshold": 0.0}, "query": QUERY, "knowledge_id": "current"}
    conditions = {
        "logical_operator": "and",
        "conditions": [{"name": "category", "comparison_operator": "is not", "value": "x"}],
    }
    for body in (asked, asked | {"metadata_condition": None}, asked | {"metadata_condition": conditions}):
        headers = AUTHORIZED | {"Content-Type": "application/json"}
        reply = speaking.http.post(DIFY, content=json.dumps(body), headers=headers)
        assert reply.status_code == 200, reply.text
        records = reply.json()["records"]
        assert [each["metadata"]["id"] for each in records] == [each["id"] for each in search(speaking, k=3)["results"]]
        # Dify reads these four of a record, and takes metadata for an object.
        assert all({*each} == {"content", "score", "title", "metadata"} for each in records)


def test_a_dialect_that_is_off_is_no_path(service: ServiceProcess) -> None:
    for path in (OPENAI, DIFY):
        reply = service.http.post(path, json={"query": QUERY})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert path not in service.http.get("/openapi.json").json()["paths"]


def test_the_filter_of_a_key_holds(speaking: ServiceProcess) -> None:
    key = {"Authorization": f"Bearer {FILTERED}"}
    expected = [each["id"] for each in search(speaking, filter={"category": "kostnader"})["results"]]
    page = ask(speaking, OPENAI, {"query": QUERY}, key).json()
    assert expected and [each["file_id"] for each in page["data"]] == expected
    reply = ask(speaking, DIFY, {"knowledge_id": "current", "query": QUERY}, key).json()
    assert [each["metadata"]["id"] for each in reply["records"]] == expected


def test_the_rate_of_a_key_holds(speaking: ServiceProcess) -> None:
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


def test_the_sdk_of_openai(speaking: ServiceProcess) -> None:
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
        wanted = {"type": "eq", "key": "category", "value": "nowhere"}
        empty = client.vector_stores.search("current", query=QUERY, filters=wanted)  # type: ignore[arg-type]
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


def test_the_asynchronous_sdk_of_openai(speaking: ServiceProcess) -> None:
    found = asyncio.run(_search(str(speaking.http.base_url).rstrip("/")))
    assert found == [each["file_id"] for each in openai(speaking, query=[QUERY, ANOTHER])["data"]]


@pytest.mark.parametrize("written", ["2", "2.0", "2e0"])
def test_a_whole_number_is_an_integer_however_it_is_written(speaking: ServiceProcess, written: str) -> None:
    headers = AUTHORIZED | {"Content-Type": "application/json"}
    openai = f'{{"query": "permit", "max_num_results": {written}}}'
    found = speaking.http.post("/v1/vector_stores/current/search", content=openai, headers=headers)
    assert found.status_code == 200, found.text
    dify = f'{{"knowledge_id": "current", "query": "permit", "retrieval_setting": {{"top_k": {written}}}}}'
    found = speaking.http.post("/dify/retrieval", content=dify, headers=headers)
    assert found.status_code == 200, found.text
