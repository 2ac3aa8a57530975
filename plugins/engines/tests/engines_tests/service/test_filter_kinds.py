"""Filters on fields of any kind give the same results and errors over an engine as in the process."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from engines_tests.service.pair import KEYS, Services, same
from tests.prometheus_process import until
from tests.service.access.files import entry, write
from tests.service.process.test_process import refusal
from tests.service_process import ServiceProcess

QUERY = "Who pays for the scaffold?"
KEEP_ALL = {"threshold": -2.0}
ORDERED = "filter: tags holds lists of strings, which have no order; name a string"


@pytest.mark.parametrize(
    "query_filter", [{"tags": {"gt": 1}}, {"$or": [{"year": 1990}, {"$not": {"tags": {"lte": 2.5}}}]}]
)
@pytest.mark.slow
def test_ordering_filter_on_list_is_refused(services: Services, query_filter: dict[str, Any]) -> None:
    request = {"query": QUERY, "filter": query_filter}
    for path, body, message in (
        ("/search", request, ORDERED),
        ("/search/batch", {"queries": [QUERY, request]}, f"queries.1.{ORDERED}"),
        ("/explain", request | {"document_id": "x"}, ORDERED),
    ):
        for reply in services.ask(path, body):
            assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid"), reply.text
            assert reply.json()["error"]["message"] == message


@pytest.mark.parametrize(
    ("query_filter", "found"),
    [
        ({"tags": "valve"}, True),
        ({"tags": ["valve", "seal"]}, True),
        ({"checked": True}, True),
        ({"checked": False}, True),
        ({"day": {"gte": "2010-05-02"}}, True),
        ({"day": {"gt": "2010-05-02", "lt": "2011-05-31T00:00:00+02:00"}}, True),
        ({"$not": {"day": {"gte": "1999-12-31"}}}, False),
        ({"year": {"gte": 2000}}, True),
    ],
)
def test_filter_compares_values_as_in_process(services: Services, query_filter: dict[str, Any], found: bool) -> None:
    body = {"query": QUERY, "filter": {"category": "bygglov"} | query_filter, "k": 30, **KEEP_ALL}
    assert bool(same(services, "/search", body)["results"]) == found


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"category": {"ne": 5}}, "category holds texts, but the filter compares it with numbers"),
    ({"year": "1999"}, "year holds numbers, but the filter compares it with texts"),
    ({"checked": {"nin": [True, 0]}}, "checked holds booleans, but the filter compares it with numbers"),
    ({"checked": {"gt": 0}}, "checked holds booleans, but the filter compares it with numbers"),
    ({"tags": {"lt": 3}}, "tags holds lists of strings, which have no order"),
    ({"day": {"lt": 3}}, "day holds dates, but the filter compares it with numbers"),
    ({"year": {"lt": "2001-01-01"}}, "year holds numbers, but the filter compares it with dates"),
    ({"owner": "a"}, "no document has the field owner; the fields are category, checked, day, tags, year"),
]


def refused_keys(service: ServiceProcess) -> list[str]:
    lines = [json.loads(line) for line in service.log().splitlines() if '"cannot reload API keys' in line]
    return [line["reason"] for line in lines]


def test_unfit_key_filter_is_refused(services: Services) -> None:
    keys = Path(services.settings["TAUGATE_KEYS_FILE"])
    both = services.here, services.there
    try:
        for query_filter, message in UNFIT:
            before = [len(refused_keys(each)) for each in both]
            write(keys, [*KEYS, entry("key-shop", "shop", "search", filter=query_filter)])
            for each in both:
                each.process.send_signal(signal.SIGHUP)
            until(lambda before=before: all(len(refused_keys(each)) > n for each, n in zip(both, before, strict=True)))
            one, other = (refused_keys(each)[-1] for each in both)
            assert other == one
            assert f"the filter of the key shop does not fit the release: {message}" in other
    finally:
        write(keys, KEYS)
    same(services, "/search", {"query": QUERY})


@pytest.mark.slow
def test_service_does_not_start_with_unfit_key_filter(services: Services, tmp_path: Path) -> None:
    for query_filter, message in (UNFIT[0], ({"year": {"lt": 2**53 + 1}}, "year: an integer beyond 2⁵³")):
        keys = write(tmp_path / "keys.json", [entry("key-shop", "shop", "search", filter=query_filter)])
        settings = services.settings | {"TAUGATE_KEYS_FILE": str(keys)}
        assert message in refusal("--releases", str(services.folder), **settings)


@pytest.mark.parametrize(("query_filter", "message"), UNFIT[:7], ids=str)
def test_unfit_search_filter_is_refused(services: Services, query_filter: dict[str, Any], message: str) -> None:
    for reply in services.ask("/search", {"query": QUERY, "filter": query_filter}):
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid"), reply.text
        assert reply.json()["error"]["message"].startswith(f"filter: {message}")
