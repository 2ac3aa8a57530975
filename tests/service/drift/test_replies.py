"""Every reply reports the present alarm; /release shows live overlap; the canary notices changes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from taugate.drift.signals import MIN_IN_WINDOW
from taugate.errors import OtherReranker, RerankerUnavailable
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.reader import Release
from taugate.retrieval.retriever import Retriever
from taugate.service.api.schemas import SearchResponse
from taugate.service.app import create_app
from taugate.service.drift.analysis import Canary
from taugate.service.settings import Settings
from tests.prometheus_process import until
from tests.service.drift.traffic import (
    NO_ALARM,
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
from tests.service.test_metrics import scrape
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


def test_reply_names_alarms_of_metrics(drifted: ServiceProcess) -> None:
    on = {signal for signal, value in by_signal(drifted, "alarm").items() if value}
    assert len(on) == len(told(drifted)["signals"])
    assert {*told(drifted)["signals"]} == on


def test_batch_replies_report_alarm(drifted: ServiceProcess) -> None:
    assert send(drifted, ["asked for the first time", ASKED_BEFORE]) == [told(drifted)] * 2


def test_cached_reply_reports_new_alarm(drifted: ServiceProcess) -> None:
    hits = 'taugate_cache_requests_total{outcome="hit"}'
    before = drifted.metrics()[hits]
    assert ask(drifted, ASKED_BEFORE)["drift"]["alarm"] is True
    assert drifted.metrics()[hits] == before + 1


@pytest.mark.parametrize("fields", [{"k": 3}, {"threshold": 2.0}, {"include_text": False}, {"filter": {}}])
def test_alarm_is_reported_with_options(drifted: ServiceProcess, fields: dict) -> None:
    reply = drifted.http.post("/search", json={"query": "a roof"} | fields)
    assert reply.json()["drift"]["alarm"] is True
    SearchResponse.model_validate_json(reply.content, strict=True)


def test_disabled_drift_reports_no_alarm(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_DRIFT="false") as service:
        assert send(service.ready(), foreign_queries(64)) == [NO_ALARM] * 64
        assert told(service) == NO_ALARM
        assert metrics(service) == {}
        assert drift_of(service) is None


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


def drift_of(service: ServiceProcess) -> dict:
    return service.http.get("/release").json()["drift"]


def test_release_shows_overlap_of_gauges(releases: Path, sample: Path) -> None:
    with FastDriftService(releases) as service:
        service.ready()
        nothing = {"coe": None, "coe_expected": None, "roe": None, "loss": None}
        assert drift_of(service) == NO_ALARM | nothing
        queries = ordinary(sample, 2 * MIN_IN_WINDOW)
        for first in range(0, len(queries), 50):
            assert service.http.post("/search/batch", json={"queries": queries[first : first + 50]}).status_code == 200
        until(lambda: drift_of(service)["roe"] is not None)
        told, shown = drift_of(service), service.http.get("/metrics").text
    assert told["coe"] is None, "nothing was judged"
    for name in ("coe_expected", "roe"):
        assert 0 <= told[name]["lower"] <= told[name]["mean"] <= told[name]["upper"] <= 1
        assert f"taugate_{name} {told[name]['mean']}\n" in shown


def test_shares_are_exported_beside_those_at_calibration(releases: Path, sample: Path) -> None:
    with FastDriftService(releases) as service:
        calibrated = scrape(service.ready())
        assert not any(name.startswith("taugate_drift_share{") for name in calibrated), "no traffic yet"
        queries = [*ordinary(sample, 30), *foreign_queries(20)]
        replies = [service.http.post("/search", json={"query": query}).json() for query in queries]
        empty = pytest.approx(sum(not reply["results"] for reply in replies) / len(replies))
        assert empty != 0
        # The first figures may be those of the first replies.
        until(lambda: scrape(service).get("taugate_drift_share{empty_responses}") == empty)
        live = scrape(service)
    assert 0 <= calibrated["taugate_drift_share_reference{empty_responses}"] < 0.5
    for figures in (live, calibrated):
        assert 0 < figures["taugate_drift_share_reference{topk_similarity}"] < 1, "the mean best similarity"
    assert 0 < live["taugate_drift_share{topk_similarity}"] < 1


def with_index(release: Release, index: FlatIndex) -> Release:
    old = release.retriever
    return replace(release, retriever=Retriever(old.encoder, index, old.policy, old.relevance, old.projection))


def canary(release: Release) -> Canary:
    return Canary(release, release.retriever)


def test_canary_of_unchanged_release_passes(release: Release) -> None:
    unchanged = canary(release)
    result = unchanged.run()
    assert result.alike
    assert result.difference <= release.manifest.golden_tolerance
    assert result.accuracy == unchanged.accuracy_at_calibration
    assert 0.1 < result.accuracy <= 1


def test_canary_fails_on_reordered_documents(release: Release) -> None:
    """Every similarity is as in the record, in the same order, but of the wrong document."""
    vectors = np.roll(release.retriever.index.vectors[np.arange(503)], 7, axis=0)  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert result.difference <= release.manifest.golden_tolerance
    assert result.accuracy < canary(release).accuracy_at_calibration
    assert not result.alike


def test_canary_fails_on_changed_vectors(release: Release) -> None:
    vectors = release.retriever.index.vectors[np.arange(503)]  # type: ignore[attr-defined]  # a FlatIndex here
    moved = vectors + np.random.default_rng(0).normal(0, 0.01, vectors.shape).astype(np.float32)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    result = canary(with_index(release, FlatIndex.build(moved))).run()
    assert not result.alike
    assert result.difference > 10 * release.manifest.golden_tolerance


def test_canary_fails_on_nan_vectors(release: Release) -> None:
    vectors = np.full_like(release.retriever.index.vectors[np.arange(503)], np.nan)  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert (result.alike, result.difference) == (False, np.inf)


def test_canary_fails_on_missing_documents(release: Release) -> None:
    vectors = release.retriever.index.vectors[np.arange(3)]  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert (result.alike, result.difference) == (False, np.inf)


@pytest.mark.parametrize(("error", "alike"), [(RerankerUnavailable("down"), True), (OtherReranker("other"), False)])
def test_second_stage_that_is_down_says_nothing(release: Release, error: RerankerUnavailable, alike: bool) -> None:
    """Replies are the first stage's then, and another alert tells of it; other scores are an alarm."""
    paused: list[bool] = []

    def check(deadline: float) -> None:
        raise error

    second = SimpleNamespace(check=check, pause=lambda: paused.append(True))
    with_second = replace(release.retriever, second=second)  # type: ignore[arg-type]  # what the canary calls
    assert Canary(release, with_second).run().alike is alike
    assert paused == [True]
