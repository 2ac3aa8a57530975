"""Failures of the engine: a reply is correct or says in time that the engine is unavailable; the service recovers."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from taugate.retrieval.engines.engine import connect
from tests.engine_release import Pair, write_pair
from tests.faults.load import NOT_CACHED, Load, ObservedReply, answers, within
from tests.pace import at_most
from tests.postgres_process import PostgresProcess, postgres
from tests.prometheus_process import until
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

TIMEOUT = 1.0  # seconds, of the engine, on a fast machine
LATEST = 3.0  # seconds for a reply: the engine's timeout, and a margin
RECOVERED = 60.0  # seconds after the engine is back, on a busy machine
PATIENT = {"TAUGATE_ENGINE_TIMEOUT_MS": "20000"}  # for an engine that answers, however busy the machine


class World(NamedTuple):
    pair: Pair
    primary: PostgresProcess
    replica: PostgresProcess

    def point(self, name: str) -> None:
        written = self.pair.folder / "written"
        written.write_text(f"{name}\n")
        written.replace(self.pair.folder / "current")

    def service(self, *servers: PostgresProcess, **settings: str) -> ServiceProcess:
        urls = ",".join(server.url for server in servers)
        own = {"TAUGATE_ENGINE_URL": urls, "TAUGATE_ENGINE_TIMEOUT_MS": str(round(1000 * at_most(TIMEOUT)))}
        own["TAUGATE_DEADLINE_MS"] = "60000"  # LATEST is far below, but not on a busy machine
        return ServiceProcess(self.pair.folder, **{**own, **NOT_CACHED, **settings})


@pytest.fixture(scope="module")
def _world(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with postgres(replicas=1) as (primary, replica):
        engine = connect("pgvector", [primary.url])
        pair = write_pair(releases, tmp_path_factory.mktemp("engine") / "releases", engine)
        yield World(pair, primary, replica)


@pytest.fixture
def world(_world: World) -> World:
    """Its release over an engine is current."""
    _world.point(_world.pair.there)
    return _world


def ready(service: ServiceProcess) -> int:
    return int(service.http.get("/readyz").status_code)


def recovers(service: ServiceProcess) -> None:
    began = time.monotonic()
    while ready(service) != 200:
        assert time.monotonic() - began < RECOVERED, service.log()
        time.sleep(0.05)


def is_unavailable(reply: ObservedReply) -> bool:
    return reply.status == 503 and '"engine_unavailable"' in reply.text


def check(load: Load) -> None:
    """Check that every reply is in time, and is correct or says that the engine is unavailable."""
    assert not [reply for reply in load.replies if not (reply.correct or is_unavailable(reply))]
    assert max(reply.seconds for reply in load.replies) < at_most(LATEST)


def test_engine_killed_under_load_recovers(world: World) -> None:
    with world.service(world.primary) as service:
        expected = answers(service.ready())
        known = service.http.post("/search", json={"query": "a roof", "threshold": -2.0}).json()
        shown = {"document_id": known["results"][0]["id"]}
        asked = [
            ("/search", {"query": "permit"}),
            ("/search/batch", {"queries": ["permit", "roof"]}),
            ("/explain", {"query": "permit"} | shown),
            ("/feedback", {"query": "permit", "relevant": True} | shown),
            ("/feedback", {"query_id": known["query_id"], "relevant": True} | shown),
        ]
        with Load(service.port, expected, keep=True) as load:
            load.wait_for_answers()
            world.primary.kill()
            time.sleep(3)
            refused = [service.http.post(path, json=body) for path, body in asked]
            refused.append(service.http.get("/readyz"))
            metrics = service.http.get("/metrics").text
            world.primary.start()
            recovers(service)
            load.wait_for_answers(50)
        check(load)
        assert any(is_unavailable(reply) for reply in load.replies)
        for reply in refused:
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unavailable")
            assert "Retry-After" in reply.headers
            assert str(world.primary.url) not in reply.text
        assert "taugate_engine_up 0.0" in metrics
        assert "taugate_engine_up 1.0" in service.http.get("/metrics").text
        assert all(f'stage="{stage}"' in metrics for stage in ("engine", "rescore", "search"))
        log = service.log()
    assert "Traceback" not in log
    assert '"engine is not responding"' in log


def test_engine_hanging_under_load_recovers(world: World) -> None:
    """One question waits for it; the others are answered at once."""
    with world.service(world.primary) as service:
        expected = answers(service.ready())
        with Load(service.port, expected, keep=True) as load:
            load.wait_for_answers()
            world.primary.pause()
            try:
                until(lambda: sum(map(is_unavailable, [*load.replies])) >= 200, 600)  # in seconds, by three clients
            finally:
                world.primary.pause(resume=True)
            recovers(service)
            load.wait_for_answers(50)
    check(load)
    refused = [reply for reply in load.replies if is_unavailable(reply)]
    assert sum(reply.seconds > at_most(TIMEOUT) / 2 for reply in refused) < len(refused) / 4


def test_replica_answers_after_primary_is_killed(world: World) -> None:
    with world.service(world.primary, world.replica, **PATIENT) as service:
        expected = answers(service.ready())
        with Load(service.port, expected, keep=True) as load:
            load.wait_for_answers()
            world.primary.kill()
            try:
                load.wait_for_answers(100)
            finally:
                world.primary.start()
    assert all(reply.correct for reply in load.replies), "one retry is enough"
    assert max(reply.seconds for reply in load.replies) < at_most(LATEST)


@contextmanager
def waiting(world: World, workers: str, **settings: str) -> Iterator[ServiceProcess]:
    """A service that was started while its engine is away."""
    world.primary.kill()
    try:
        with world.service(world.primary, TAUGATE_WORKERS=workers, **settings) as service:
            until(lambda: service.log().count("cannot load the release yet") == int(workers))
            yield service
    finally:
        world.primary.start()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_service_starts_before_engine(world: World, workers: str) -> None:
    with waiting(world, workers) as service:
        assert service.http.get("/livez").status_code == 200
        reply = service.http.get("/readyz")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_unavailable")
        assert "taugate_engine_up 0.0" in service.http.get("/metrics").text
        world.primary.start()
        service.ready(RECOVERED)
        until(lambda: "taugate_engine_up 1.0" in service.http.get("/metrics").text)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_waiting_service_can_be_stopped(world: World, workers: str) -> None:
    with waiting(world, workers) as service, within(10):
        code, log = service.stop()
    assert (code, "Traceback" in log) == (0, False)


def test_service_follows_promotion_after_waiting(world: World) -> None:
    with waiting(world, "1", TAUGATE_RELOAD_SECONDS="0.2") as service:
        time.sleep(1)  # in which it looks a few times whether another release is current
        world.primary.start()
        serves(service, world.pair.there)
        world.point(world.pair.here)
        serves(service, world.pair.here)
        until(lambda: "taugate_engine_up NaN" in service.http.get("/metrics").text)


def test_shadow_is_retried_after_engine_failure(world: World) -> None:
    world.point(world.pair.here)
    shadow = world.pair.folder / "shadow"
    shadow.write_text(f"{world.pair.there}\n")
    world.primary.kill()
    try:
        settings = {"TAUGATE_RELOAD_SECONDS": "0.2", "TAUGATE_SHADOW_SHARE": "1"}
        with world.service(world.primary, **settings) as service:
            until(lambda: "cannot load the shadow release" in service.ready().log())
            assert service.http.get("/release").json()["shadow"] is None
            world.primary.start()
            until(lambda: service.http.get("/release").json()["shadow"] == world.pair.there)
    finally:
        shadow.unlink()
        world.primary.start()


def serves(service: ServiceProcess, name: str) -> None:
    deadline = time.monotonic() + 120
    while service.http.get("/readyz").json().get("release") != name:
        assert time.monotonic() < deadline, service.log()
        time.sleep(0.02)


def test_release_switch_mixes_no_replies(world: World, rounds: int) -> None:
    """Of one the corpus is here, of the other in the engine; a reply has the id of the release that it is of."""
    with world.service(world.primary, **PATIENT) as service:

        def switch(name: str) -> None:
            world.point(name)
            service.process.send_signal(signal.SIGHUP)
            serves(service, name)

        expected = answers(service.ready())
        switch(world.pair.here)
        expected |= answers(service)
        assert {*expected} == {world.pair.here, world.pair.there}
        with Load(service.port, expected, clients=4, keep=True) as load:
            for number in range(10 * rounds):
                switch(world.pair.here if number % 2 else world.pair.there)
                load.wait_for_answers(5)
    assert [reply for reply in load.replies if not reply.correct] == []


def test_previous_release_serves_until_engine_returns(world: World) -> None:
    world.point(world.pair.here)
    with world.service(world.primary, TAUGATE_RELOAD_SECONDS="0.3") as service:
        expected = answers(service.ready())
        world.primary.kill()
        try:
            world.point(world.pair.there)
            deadline = time.monotonic() + 120
            while "taugate_reload_failed 1.0" not in service.http.get("/metrics").text:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert answers(service) == expected
            assert ready(service) == 200
        finally:
            world.primary.start()
        serves(service, world.pair.there)
