"""POST /search with a filter: the exact top-K within it, and a message for each invalid filter."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from taugate.registry.catalog import find
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import OneOf, Range
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from taugate.retrieval.vectors import shortest_decimal
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

QUERY = "What does a building permit cost?"
KEEP_ALL = -2.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def release(rich: Path) -> Release:
    return load(find(rich), threads=1)


@pytest.fixture(scope="module")
def filtering(rich: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(rich) as process:
        yield process.ready()


def brute_force(release: Release, meets: Any, k: int) -> list[tuple[str, float]]:
    """Every document by score, as an unfiltered search says it, and of those the first that meet the filter."""
    (answer,) = release.retriever.search([Query(QUERY, len(release.documents), KEEP_ALL)])
    found = zip(answer.positions.tolist(), map(shortest_decimal, answer.scores), strict=True)
    matching = [(release.documents[position], score) for position, score in found]
    return [(document.id, score) for document, score in matching if meets(document.metadata)][:k]


FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"category": "bygglov"}, lambda m: m["category"] == "bygglov"),
    ({"category": ["bygglov", "nowhere"]}, lambda m: m["category"] == "bygglov"),
    ({"år": "å"}, lambda m: m["år"] == "å"),
    ({"checked": True}, lambda m: m["checked"] is True),
    ({"checked": [True, False]}, lambda m: m["checked"] is not None),
    ({"year": 2000}, lambda m: m["year"] == 2000),
    ({"year": 2000.0}, lambda m: m["year"] == 2000),
    ({"year": {"gte": 2000, "lt": 2001}}, lambda m: 2000 <= m["year"] < 2001),
    ({"year": {"gt": 2000, "lte": 2020.5}, "år": "z"}, lambda m: 2000 < m["year"] <= 2020.5 and m["år"] == "z"),
    ({"year": {"gt": 10**400}}, lambda m: False),
    ({"year": -(10**400)}, lambda m: False),
    ({"tags": "odd"}, lambda m: "odd" in tags_of(m)),
    ({"tags": "alone"}, lambda m: "alone" in tags_of(m)),
    ({"tags": ["tag1", "alone", "nowhere"]}, lambda m: {"tag1", "alone"} & {*tags_of(m)}),
    ({"tags": "even", "year": {"lt": 2010}}, lambda m: "even" in tags_of(m) and m["year"] < 2010),
    ({"day": {"gte": "2010-01-01"}}, lambda m: m["day"] >= "2010"),
    (
        {"day": {"gt": "2010-05-11", "lte": "2020-05-21T08:30:00Z"}},
        lambda m: "2010-05-12" <= m["day"] <= "2020-05-21T10:30",
    ),
    ({"day": {"lt": "2010-05-11T08:30:00Z"}}, lambda m: m["day"] < "2010-05-11T10"),
    ({"year": {"ne": 2000}}, lambda m: m["year"] != 2000),
    ({"checked": {"ne": True}}, lambda m: m["checked"] is not True),
    ({"tags": {"ne": "odd"}}, lambda m: "odd" not in tags_of(m)),
    ({"tags": {"nin": ["odd", "tag2"]}}, lambda m: not {"odd", "tag2"} & {*tags_of(m)}),
    ({"year": {"gte": 2000, "lt": 2010, "ne": 2005}}, lambda m: 2000 <= m["year"] < 2010 and m["year"] != 2005),
    ({"$not": {"år": "z", "checked": True}}, lambda m: not (m["år"] == "z" and m["checked"] is True)),
    ({"$or": [{"tags": "tag1"}, {"year": {"lt": 1992}}]}, lambda m: "tag1" in tags_of(m) or m["year"] < 1992),
    (
        {"år": "å", "$or": [{"tags": "tag1"}, {"$not": {"year": {"lt": 2020}}}]},
        lambda m: m["år"] == "å" and ("tag1" in tags_of(m) or m["year"] >= 2020),
    ),
    ({}, lambda m: True),
]


def tags_of(metadata: dict[str, Any]) -> list[str]:
    """The tags of a document: a single string is a list of one."""
    tags = metadata.get("tags", [])
    return tags if isinstance(tags, list) else [tags]


def test_tags_keep_their_order(filtering: ServiceProcess) -> None:
    shown = [
        each["metadata"]["tags"] for each in filtering.search(filter={"tags": "odd"}, threshold=KEEP_ALL)["results"]
    ]
    assert shown and all(tags[0] == "odd" and tags[1].startswith("tag") for tags in shown)


@pytest.mark.parametrize(
    ("query_filter", "meets"), FILTERS, ids=[json.dumps(query_filter)[:40] for query_filter, _ in FILTERS]
)
def test_filtered_top_k_equals_brute_force(
    filtering: ServiceProcess, release: Release, query_filter: dict[str, Any], meets: Any
) -> None:
    for k in (1, 5, 100):
        reply = filtering.search(filter=query_filter, k=k, threshold=KEEP_ALL)
        expected = brute_force(release, meets, k)
        assert [(result["id"], result["score"]) for result in reply["results"]] == expected
        assert reply["considered"] == len(expected)
        assert reply["reason"] == (None if expected else "no_documents_match_filter")
        assert reply["best_score"] == (expected[0][1] if expected else None)
        assert all(meets(result["metadata"]) for result in reply["results"])


def test_empty_filter_equals_no_filter(filtering: ServiceProcess) -> None:
    whole = filtering.search()
    for query_filter in (None, {}):
        reply = filtering.search(filter=query_filter)
        assert reply | {"query_id": ""} == whole | {"query_id": ""}
        assert reply["calibrated"]


def test_filtered_search_is_not_calibrated(filtering: ServiceProcess, release: Release) -> None:
    reply = filtering.search(filter={"år": "z"}, k=5)
    assert not reply["calibrated"]
    assert reply["threshold"] == shortest_decimal(release.retriever.policy.threshold)
    assert all(result["score"] >= reply["threshold"] for result in reply["results"])
    assert reply["considered"] == reply["dropped"] + len(reply["results"]) == 5


def test_filter_without_matches_returns_reason(filtering: ServiceProcess) -> None:
    before = scrape(filtering)
    reply = filtering.search(filter={"category": "nowhere"}, min_results=2)
    assert (reply["results"], reply["considered"], reply["dropped"], reply["best_score"]) == ([], 0, 0, None)
    assert (reply["reason"], reply["calibrated"]) == ("no_documents_match_filter", False)
    counted = Counter(scrape(filtering))
    counted.subtract(before)
    assert counted["taugate_empty_responses_total{no_documents_match_filter}"] == 1
    assert counted["taugate_results_total{kept}"] == counted["taugate_results_total{dropped}"] == 0


def test_batch_queries_have_own_filters(filtering: ServiceProcess) -> None:
    queries: list[Any] = [
        {"query": QUERY, "filter": query_filter, "k": 3, "threshold": KEEP_ALL} for query_filter, _ in FILTERS
    ]
    reply = filtering.http.post("/search/batch", json={"queries": [QUERY, *queries]})
    alone = [filtering.search(), *(filtering.search(**query) for query in queries)]
    names = ("results", "considered", "reason", "calibrated", "best_score")
    assert [{n: each[n] for n in names} for each in reply.json()["responses"]] == [
        {n: each[n] for n in names} for each in alone
    ]


def nested(levels: int) -> dict[str, Any]:
    return {"$not": nested(levels - 1)} if levels else {"year": 1}


NUMBERS = [*range(257)]
WRONG: dict[str, tuple[Any, str]] = {
    "text": ("bygglov", 'filter: is not an object: write {"field": value}'),
    "list": ([], "filter: is not an object"),
    "unknown": (
        {"zebra": 1},
        "filter: no document has the field zebra; the fields are category, checked, day, tags, year, år",
    ),
    "unknown beside known": ({"category": "a", "zebra": 1}, "field zebra"),
    "unknown and long": ({"z" * 60_000: 1}, "the fields are category"),
    "braces": ({"{message}": []}, "filter: {message}: the list is empty"),
    "null": ({"category": None}, "filter: category: null is not a value"),
    "empty list": ({"category": []}, "filter: category: the list is empty"),
    "null in a list": ({"category": ["a", None]}, "filter: category: null"),
    "nested list": ({"category": ["a", ["b"]]}, "filter: category: a list in a list"),
    "nested object": ({"category": ["a", {"gt": 1}]}, "filter: category: an object in a list"),
    "no bound": ({"year": {}}, "filter: year: no operator; use gt, gte, lt, lte, ne, nin"),
    "bounds for tags": ({"tags": {"gt": 1}}, "filter: tags holds lists of strings, which have no order; name a string"),
    "unknown operator": ({"year": {"above": 1}}, "filter: year: unknown operator; use gt, gte, lt, lte, ne, nin"),
    "text bound": ({"year": {"gt": "1"}}, "filter: year: gt needs a finite number, or an ISO date such as 2024-05-31"),
    "bounds of two kinds": ({"year": {"gt": 1, "lt": "2001-01-01"}}, "filter: year: bounds mix numbers and dates"),
    "text for numbers": ({"year": "2000"}, "filter: year holds numbers, but the filter compares it with texts"),
    "a text among numbers": (
        {"year": [2000, "2000"]},
        "filter: year holds numbers, but the filter compares it with texts",
    ),
    "not a text, of numbers": (
        {"year": {"ne": "2000"}},
        "filter: year holds numbers, but the filter compares it with texts",
    ),
    "bounds for texts": ({"år": {"gt": 0}}, "filter: år holds texts, but the filter compares it with numbers"),
    "dates for numbers": (
        {"year": {"gt": "2001-01-01"}},
        "filter: year holds numbers, but the filter compares it with dates",
    ),
    "dates for texts": ({"år": {"gt": "2001-01-01"}}, "filter: år holds texts, but the filter compares it with dates"),
    "number for dates": ({"day": {"gt": 1}}, "filter: day holds dates, but the filter compares it with numbers"),
    "number for tags": ({"tags": 1}, "filter: tags holds texts, but the filter compares it with numbers"),
    "number for booleans": ({"checked": 1}, "filter: checked holds booleans, but the filter compares it with numbers"),
    "boolean bound": ({"year": {"lte": True}}, "filter: year: lte needs a finite number"),
    "null bound": ({"year": {"lt": None}}, "filter: year: lt needs a finite number"),
    "list bound": ({"year": {"gte": [1]}}, "filter: year: gte needs a finite number"),
    "NaN bound": ({"year": {"gte": float("nan")}}, "filter: year: gte needs a finite number"),
    "infinite bound": ({"year": {"gte": float("inf")}}, "filter: year: gte needs a finite number"),
    "NaN": ({"year": float("nan")}, "filter: year: a number must be finite"),
    "infinite in a list": ({"year": [1, float("-inf")]}, "filter: year: a number must be finite"),
    "ne with a list": ({"year": {"ne": [1]}}, "filter: year: ne needs one value; use nin for a list"),
    "nin without a list": ({"year": {"nin": 1}}, "filter: year: nin needs a list; use ne for one value"),
    "nin with an empty list": ({"year": {"nin": []}}, "filter: year: the list is empty"),
    "ne null": ({"year": {"ne": None}}, "filter: year: null is not a value"),
    "no alternatives": ({"$or": []}, "filter: $or needs a list of filters"),
    "one alternative, no list": ({"$or": {"year": 1}}, "filter: $or needs a list of filters"),
    "an empty alternative": ({"$or": [{"year": 1}, {}]}, "filter: $or.1 has no condition; name a field"),
    "an alternative that is a text": ({"$or": ["a"]}, "filter: $or.0 is not an object"),
    "an empty negation": ({"$not": {}}, "filter: $not has no condition"),
    "a list as negation": ({"$not": [{"year": 1}]}, "filter: $not is not an object"),
    "unknown and negated": ({"$not": {"zebra": 1}}, "filter: no document has the field zebra"),
    "tags and negated bounds": ({"$not": {"tags": {"lt": 1}}}, "filter: tags holds lists of strings"),
    "many conditions": ({"$or": [{"year": number} for number in range(17)]}, "filter: has 18 conditions, at most 16"),
    "nested too deep": (nested(40), "filter: is nested too deeply, at most 16 levels"),
    "many fields": ({str(number): 1 for number in range(17)}, "filter: has 17 fields, at most 16"),
    "many values": ({"year": NUMBERS}, "filter: year: 257 values, at most 256"),
    "many values in all": ({"year": NUMBERS[:200], "år": NUMBERS[:57]}, "filter: has 257 values, at most 256"),
}


@pytest.mark.parametrize(("query_filter", "message"), WRONG.values(), ids=WRONG.keys())
def test_invalid_filter_is_422(filtering: ServiceProcess, query_filter: Any, message: str) -> None:
    for path, body, name in (
        ("/search", {"query": QUERY, "filter": query_filter}, ""),
        ("/search/batch", {"queries": [QUERY, {"query": QUERY, "filter": query_filter}]}, "queries.1."),
    ):
        reply = filtering.http.post(path, content=json.dumps(body), headers=JSON)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (422, "invalid")
        assert error["message"].startswith(name)
        assert message in error["message"]
        assert len(error["message"]) < 300


def test_filter_integers_equal_corpus_integers() -> None:
    for text in ("1" + "0" * 30, "-9223372036854775809", "18446744073709551616", "9007199254740993", "1e3"):
        in_corpus = orjson.loads(text)
        assert read_filter({"n": json.loads(text)}) == (OneOf.of("n", in_corpus),)
        assert read_filter({"n": {"gte": json.loads(text)}}) == (Range("n", gte=in_corpus),)


def test_filter_of_maximum_size_works(filtering: ServiceProcess, release: Release) -> None:
    years = [1990 + number / 2 for number in range(256)]
    assert (
        filtering.search(filter={"year": years}, k=5, threshold=KEEP_ALL)["results"]
        == (filtering.search(k=5, threshold=KEEP_ALL)["results"])
    )
    assert len(release.metadata.columns) == 6
