"""kill -9 of a service, or of a process of several, under load: nothing stays locked, and the next one answers."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from taugate.registry.catalog import release_ids
from taugate.registry.history import change_lock
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from tests.faults.load import CLIENTS, NOT_CACHED, Load, answers, wait_until_gone
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.process.test_workers import pids
from tests.service_process import ServiceProcess


def both(two: Two, service: ServiceProcess) -> dict:
    """Return the results of both releases; the old one is served afterwards."""
    expected = {}
    for name in (two.new, two.old):
        promote(two.folder, name)
        service.process.send_signal(signal.SIGHUP)
        until(lambda name=name: service.http.get("/readyz").json()["release"] == name)
        expected |= answers(service)
    return expected


@pytest.mark.slow
def test_killed_service_restarts_cleanly(two: Two, rng: random.Random, rounds: int) -> None:
    """The service is killed at random moments, also during a reload."""
    with ExitStack() as services:
        service = services.enter_context(ServiceProcess(two.folder, forked=False, **NOT_CACHED)).ready()
        with Load(service.port, both(two, service)) as load:
            for _ in range(2 * rounds):
                load.wait_for_answers()
                promote(two.folder, rng.choice([two.old, two.new]))
                service.process.send_signal(signal.SIGHUP)
                time.sleep(rng.uniform(0, 0.5))
                service.process.kill()
                service.process.wait()
                with change_lock(two.folder):  # no dead process holds it
                    pass
                service = services.enter_context(
                    ServiceProcess(two.folder, service.port, forked=False, **NOT_CACHED)
                ).ready()
            load.wait_for_answers()
        assert not load.incorrect
        service.stop(signal.SIGKILL)
    promote(two.folder, two.new)
    promote(two.folder, two.old)
    (two.folder / "history.jsonl").unlink()  # so that no rollback needs the other release
    assert [outcome.name for outcome in prune(two.folder, 0) if outcome.kept is None] == [two.new]
    assert release_ids(two.folder) == [two.old]


@pytest.fixture(scope="module")
def own(_two: Two, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """Two releases for the tests of this file."""
    folder = tmp_path_factory.mktemp("own") / "releases"
    return _two._replace(folder=shutil.copytree(_two.folder, folder))


@pytest.fixture(scope="module")
def workers(own: Two) -> Iterator[ServiceProcess]:
    with ServiceProcess(own.folder, forked=False, TAUGATE_WORKERS="2", **NOT_CACHED) as service:
        service.ready()
        both_ready(service, 2)
        yield service


def both_ready(service: ServiceProcess, ever: int) -> None:
    """Wait for two workers, and for so many 'ready' lines since the service started."""
    until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') >= ever)


@pytest.mark.slow
def test_killed_worker_is_replaced(workers: ServiceProcess, rng: random.Random, rounds: int) -> None:
    with Load(workers.port, answers(workers)) as load:
        for _ in range(rounds):
            load.wait_for_answers()
            killed, broken = rng.choice(pids(workers)), len(load.broken)
            ready = workers.log().count('"ready"')
            os.kill(killed, signal.SIGKILL)
            load.wait_for_answers()
            both_ready(workers, ready + 1)
            assert killed not in pids(workers)
            load.wait_for_answers()
            assert len(load.broken) - broken <= CLIENTS, "more than one request of each client"
    assert not load.incorrect


@pytest.mark.slow
def test_worker_waits_for_loadable_release(workers: ServiceProcess, own: Two) -> None:
    """A release that is being copied file by file cannot be loaded: the other worker continues until it can."""
    ready = workers.log().count('"ready"')
    with Load(workers.port, answers(workers)) as load:
        (own.folder / own.new / "index.faiss").rename(own.folder / ".aside")
        (own.folder / "current").write_text(f"{own.new}\n")
        os.kill(pids(workers)[0], signal.SIGKILL)
        until(lambda: "worker failed to start" in workers.log())
        load.wait_for_answers()
        assert workers.process.poll() is None
    assert not load.incorrect
    assert len(load.broken) <= CLIENTS
    (own.folder / "current").write_text(f"{own.old}\n")
    both_ready(workers, ready + 1)
    assert "index.faiss" in workers.log()
    assert "Traceback" not in workers.log()


@pytest.mark.slow
def test_killed_supervisor_ends_its_workers(workers: ServiceProcess, own: Two) -> None:
    """The workers end by themselves, and the port is free."""
    alive = pids(workers)
    expected = answers(workers)
    with Load(workers.port, expected) as load:
        load.wait_for_answers()
        workers.process.kill()
        workers.process.wait()
        wait_until_gone(lambda: any(Path(f"/proc/{pid}").exists() for pid in alive))
    assert not load.incorrect
    with ServiceProcess(own.folder, workers.port, forked=False, **NOT_CACHED) as again:
        assert answers(again.ready()) == expected
