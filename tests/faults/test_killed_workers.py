"""kill -9 of what serves in several processes: others go on, who dies is replaced, and none is left behind.

The tests share a service, and come in this order.
"""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import CLIENTS, NOT_CACHED, Load, answers, ends
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.process.test_workers import pids
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def own(_two: Two, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """Two releases for the tests of this file."""
    folder = tmp_path_factory.mktemp("own") / "releases"
    return _two._replace(folder=shutil.copytree(_two.folder, folder))


@pytest.fixture(scope="module")
def workers(own: Two) -> Iterator[ServiceProcess]:
    with ServiceProcess(own.folder, TAUGATE_WORKERS="2", **NOT_CACHED) as service:
        service.ready()
        both_ready(service, 2)
        yield service


def both_ready(service: ServiceProcess, ever: int) -> None:
    """Wait until two workers are there, and so many were ready since the service was started."""
    until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') >= ever)


def test_a_worker(workers: ServiceProcess, rng: random.Random, rounds: int) -> None:
    with Load(workers.port, answers(workers)) as load:
        for _ in range(rounds):
            load.goes_on()
            killed, broken = rng.choice(pids(workers)), len(load.broken)
            ready = workers.log().count('"ready"')
            os.kill(killed, signal.SIGKILL)
            load.goes_on()
            both_ready(workers, ready + 1)
            assert killed not in pids(workers)
            load.goes_on()
            assert len(load.broken) - broken <= CLIENTS, "more than each client had in hand"
    assert not load.wrong


def test_a_worker_that_cannot_be_replaced(workers: ServiceProcess, own: Two) -> None:
    """As while somebody copies a release file by file: the other worker goes on, and has company again later."""
    ready = workers.log().count('"ready"')
    with Load(workers.port, answers(workers)) as load:
        (own.folder / own.new / "index.faiss").rename(own.folder / ".aside")
        (own.folder / "current").write_text(f"{own.new}\n")
        os.kill(pids(workers)[0], signal.SIGKILL)
        until(lambda: "a worker could not start" in workers.log())
        load.goes_on()
        assert workers.process.poll() is None
    assert not load.wrong
    assert len(load.broken) <= CLIENTS
    (own.folder / "current").write_text(f"{own.old}\n")
    both_ready(workers, ready + 1)
    assert "index.faiss" in workers.log()
    assert "Traceback" not in workers.log()


def test_the_supervisor(workers: ServiceProcess, own: Two) -> None:
    """Its workers end by themselves, and give the port back."""
    alive = pids(workers)
    expected = answers(workers)
    with Load(workers.port, expected) as load:
        load.goes_on()
        workers.process.kill()
        workers.process.wait()
        ends(lambda: any(Path(f"/proc/{pid}").exists() for pid in alive))
    assert not load.wrong
    with ServiceProcess(own.folder, workers.port, **NOT_CACHED) as again:
        assert answers(again.ready()) == expected
