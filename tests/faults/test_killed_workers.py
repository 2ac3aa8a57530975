"""kill -9 of a process of a service with several: the others continue, it is replaced, and none is left behind.

The tests share a service and run in this order.
"""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import CLIENTS, NOT_CACHED, Load, answers, wait_until_gone
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.process.test_workers import pids
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow


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
