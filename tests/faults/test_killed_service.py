"""kill -9 of what serves, under load: others go on, nothing stays locked, and what is started again answers."""

import random
import signal
import time
from contextlib import ExitStack

from taugate.registry.catalog import release_ids
from taugate.registry.lock import change_lock
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from tests.faults.load import NOT_CACHED, Load, answers
from tests.prometheus_process import until
from tests.service.conftest import Two
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
                with change_lock(two.folder):  # which nobody dead holds
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
