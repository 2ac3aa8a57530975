"""kill -9 of what serves, under load: others go on, nothing stays locked, and what is started again answers."""

import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from retrieval.release.catalog import release_ids
from retrieval.release.lock import locked
from retrieval.release.promotion import promote
from retrieval.release.prune import prune
from tests.faults.load import CLIENTS, NOT_CACHED, Load, answers, ends
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.test_workers import pids
from tests.service_process import ServiceProcess


def both(two: Two, service: ServiceProcess) -> dict:
    """Answers of both releases; the old one is in service afterwards."""
    expected = {}
    for name in (two.new, two.old):
        promote(two.folder, name)
        service.process.send_signal(signal.SIGHUP)
        until(lambda name=name: service.http.get("/readyz").json()["release"] == name)
        expected |= answers(service)
    return expected


def test_one_process(two: Two, rng: random.Random, rounds: int) -> None:
    """Also while it changes from one release to another."""
    with ExitStack() as services:
        service = services.enter_context(ServiceProcess(two.folder, **NOT_CACHED)).ready()
        with Load(service.port, both(two, service)) as load:
            for _ in range(2 * rounds):
                load.goes_on()
                promote(two.folder, rng.choice([two.old, two.new]))
                service.process.send_signal(signal.SIGHUP)
                time.sleep(rng.uniform(0, 0.5))
                service.process.kill()
                service.process.wait()
                with locked(two.folder):  # which nobody dead holds
                    pass
                service = services.enter_context(ServiceProcess(two.folder, service.port, **NOT_CACHED)).ready()
            load.goes_on()
        assert not load.wrong
        service.stop(signal.SIGKILL)
    promote(two.folder, two.new)
    promote(two.folder, two.old)
    (two.folder / "history.jsonl").unlink()  # so that no rollback needs the other
    assert [outcome.name for outcome in prune(two.folder, 0) if outcome.kept is None] == [two.new]
    assert release_ids(two.folder) == [two.old]


def test_a_worker(two: Two, rng: random.Random, rounds: int) -> None:
    with ServiceProcess(two.folder, TAUGATE_WORKERS="2", **NOT_CACHED) as service:
        service.ready()
        until(lambda: len(pids(service)) == 2)
        with Load(service.port, answers(service)) as load:
            for _ in range(rounds):
                load.goes_on()
                killed = rng.choice(pids(service))
                before = len(load.broken)
                os.kill(killed, signal.SIGKILL)
                load.goes_on()
                until(lambda killed=killed: len(pids(service)) == 2 and killed not in pids(service))
                load.goes_on()
                assert len(load.broken) - before <= CLIENTS, "more than each client had in hand"
        assert not load.wrong


def test_a_worker_that_cannot_be_replaced(two: Two) -> None:
    """As while somebody copies a release file by file: the other worker goes on, and has company again later."""
    with ServiceProcess(two.folder, TAUGATE_WORKERS="2", **NOT_CACHED) as service:
        service.ready()
        until(lambda: len(pids(service)) == 2)
        with Load(service.port, answers(service)) as load:
            load.goes_on()
            (two.folder / two.new / "index.faiss").rename(two.folder / ".aside")
            (two.folder / "current").write_text(f"{two.new}\n")
            first, _ = pids(service)
            os.kill(first, signal.SIGKILL)
            until(lambda: "a worker could not start" in service.log())
            load.goes_on()
            assert service.process.poll() is None
            (two.folder / "current").write_text(f"{two.old}\n")
            until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') > 2)
            load.goes_on()
        assert not load.wrong
        assert len(load.broken) <= CLIENTS
        code, log = service.stop()
    assert code == 0
    assert "index.faiss" in log
    assert "Traceback" not in log


def test_the_supervisor_of_workers(two: Two) -> None:
    """Its workers end by themselves, and give the port back."""
    with ServiceProcess(two.folder, TAUGATE_WORKERS="2", **NOT_CACHED) as service:
        service.ready()
        until(lambda: len(pids(service)) == 2)
        alive = pids(service)
        with Load(service.port, answers(service)) as load:
            load.goes_on()
            service.process.kill()
            service.process.wait()
            ends(lambda: any(Path(f"/proc/{pid}").exists() for pid in alive))
            with ServiceProcess(two.folder, service.port, **NOT_CACHED) as again:
                again.ready()
                load.goes_on()
        assert not load.wrong
