"""kill -9 of a service under load: nothing stays locked, and the next service answers."""

import random
import signal
import time
from contextlib import ExitStack

import pytest

from taugate.registry.catalog import release_ids
from taugate.registry.history import change_lock
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from tests.faults.load import NOT_CACHED, Load, answers
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow


def both(two: Two, service: ServiceProcess) -> dict:
    """Return the results of both releases; the old one is served afterwards."""
    expected = {}
    for name in (two.new, two.old):
        promote(two.folder, name)
        service.process.send_signal(signal.SIGHUP)
        until(lambda name=name: service.http.get("/readyz").json()["release"] == name)
        expected |= answers(service)
    return expected


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
