"""Every reply reports the present drift alarm, even if it was cached before."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.reader import Release
from taugate.retrieval.retriever import Retriever
from taugate.service.api.schemas import BatchResponse, SearchResponse
from taugate.service.app import create_app, openapi_document
from taugate.service.settings import Settings
from tests.prometheus_process import until
from tests.service.drift.traffic import (
    NO_ALARM,
    SIGNAL,
    FastDriftService,
    ask,
    by_signal,
    foreign_queries,
    metrics,
    ordinary,
    send,
    told,
)
from tests.service.inprocess import PATIENCE, serving
from tests.service.inprocess import until as until_in_process
from tests.service_process import ServiceProcess

ASKED_BEFORE = "What does a building permit cost?"


@pytest.fixture(scope="module")
def drifted(releases: Path) -> Iterator[ServiceProcess]:
    """A service that was asked a thousand foreign questions, and one of its own before that."""
    with FastDriftService(releases) as service:
        assert ask(service.ready(), ASKED_BEFORE)["drift"] == NO_ALARM
        send(service, foreign_queries(1000))
        until(lambda: metrics(service)["blocks_total"] >= 5)  # as a later block may add a signal
        until(lambda: told(service)["alarm"])
        yield service


def test_new_service_reports_no_alarm(service: ServiceProcess) -> None:
    assert told(service) == NO_ALARM
    assert send(service, ["one", "two"]) == [NO_ALARM] * 2


@pytest.mark.slow
def test_ordinary_queries_raise_no_alarm(service: ServiceProcess, sample: Path) -> None:
    send(service, ordinary(sample, 1200))
    until(lambda: metrics(service)["blocks_total"] == 6)
    assert told(service) == NO_ALARM
    assert set(by_signal(service, "alarm").values()) == {0}


@pytest.mark.slow
def test_foreign_queries_raise_alarm(drifted: ServiceProcess) -> None:
    reply = told(drifted)
    assert reply["alarm"] is True
    assert SIGNAL in reply["signals"]


def test_reply_names_alarms_of_metrics(drifted: ServiceProcess) -> None:
    on = {signal for signal, value in by_signal(drifted, "alarm").items() if value}
    assert len(on) == len(told(drifted)["signals"])
    assert {*told(drifted)["signals"]} == on


def test_batch_replies_report_alarm(drifted: ServiceProcess) -> None:
    assert send(drifted, ["asked for the first time", ASKED_BEFORE]) == [told(drifted)] * 2


def test_cached_reply_reports_new_alarm(drifted: ServiceProcess) -> None:
    def hits() -> float:
        text = drifted.http.get("/metrics").text
        return float(text.split('taugate_cache_requests_total{outcome="hit"} ')[1].split()[0])

    before = hits()
    assert ask(drifted, ASKED_BEFORE)["drift"]["alarm"] is True
    assert hits() == before + 1


@pytest.mark.parametrize("fields", [{"k": 3}, {"threshold": 2.0}, {"include_text": False}, {"filter": {}}])
def test_alarm_is_reported_with_options(drifted: ServiceProcess, fields: dict) -> None:
    reply = drifted.http.post("/search", json={"query": "a roof"} | fields)
    assert reply.json()["drift"]["alarm"] is True
    SearchResponse.model_validate_json(reply.content, strict=True)


def test_batch_reply_matches_schema(drifted: ServiceProcess) -> None:
    reply = drifted.http.post("/search/batch", json={"queries": ["a roof", "a wall"]})
    BatchResponse.model_validate_json(reply.content, strict=True)


def test_disabled_drift_reports_no_alarm(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_DRIFT="false") as service:
        assert send(service.ready(), foreign_queries(64)) == [NO_ALARM] * 64
        assert told(service) == NO_ALARM
        assert metrics(service) == {}


def test_openapi_describes_drift_field() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert schemas["SearchResponse"]["properties"]["drift"] == {"$ref": "#/components/schemas/Drift"}
    assert "drift" in schemas["SearchResponse"]["required"]
    assert {*schemas["Drift"]["required"]} == {"alarm", "signals"}
    properties = schemas["Drift"]["properties"]
    assert properties["alarm"]["type"] == "boolean"
    assert (properties["signals"]["type"], properties["signals"]["items"]) == ("array", {"type": "string"})


def test_failed_canary_is_reported_in_replies(releases: Path, release: Release) -> None:
    """In this process, as no release with another index would be loaded."""
    old = release.retriever
    rolled = FlatIndex.build(np.roll(old.index.vectors[np.arange(len(old.index))], 7, axis=0))  # type: ignore[attr-defined]  # a FlatIndex here
    other = replace(release, retriever=Retriever(old.encoder, rolled, old.policy, old.relevance, old.projection))
    app = create_app(Settings(releases=releases), lambda folder, threads, precision: other)

    async def scenario() -> None:
        async with serving(app) as http:

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            async def says_so() -> bool:
                return (await search(http))["alarm"]

            await until_in_process(ready)
            assert await search(http) == NO_ALARM
            await until_in_process(says_so)
            assert await search(http) == {"alarm": True, "signals": ["canary"]}

    async def search(http: httpx.AsyncClient) -> dict:
        return dict((await http.post("/search", json={"query": "permit"})).json()["drift"])

    asyncio.run(asyncio.wait_for(scenario(), 3 * PATIENCE))
