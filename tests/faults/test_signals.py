"""Signals at inconvenient moments: accepted requests are answered, and the process ends."""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from taugate.registry.promotion import promote, shadow
from tests.faults.load import NOT_CACHED, QUERIES, Load
from tests.faults.test_kills import both
from tests.pace import at_most
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

SHUTDOWN = 20  # seconds, the default of TAUGATE_SHUTDOWN_SECONDS


def answered(log: str) -> int:
    """Return the number of searches that the service answered with 200."""
    lines = [json.loads(line) for line in log.splitlines()]
    return sum(line.get("route") == "/search" and line["status"] == 200 for line in lines)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_during_release_changes(two: Two, rng: random.Random, workers: str) -> None:
    """A hundred SIGHUPs in a second under load, then SIGTERM during one more change."""
    settings = {"TAUGATE_WORKERS": workers, "TAUGATE_SHADOW_SHARE": "0.5", **NOT_CACHED}
    with ServiceProcess(two.folder, **settings) as service:
        service.ready()
        until(lambda: service.log().count('"ready"') == int(workers))
        expected = both(two, service)
        until(lambda: service.log().count('"ready"') >= 3 * int(workers))
        reference = 2 * len(QUERIES)  # searches for the expected results
        with Load(service.port, expected) as load:
            for number in range(100):
                if number % 10 == 0:
                    promote(two.folder, rng.choice([two.old, two.new]))
                    promoted = (two.folder / "current").read_text().strip()
                    shadow(two.folder, rng.choice([None, {two.old: two.new, two.new: two.old}[promoted]]))
                service.process.send_signal(signal.SIGHUP)
                time.sleep(0.01)
            promote(two.folder, two.new)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.http.get("/readyz").json()["release"] == two.new)
            load.wait_for_answers()
            assert not load.broken
            promote(two.folder, two.old)
            service.process.send_signal(signal.SIGHUP)
            time.sleep(rng.uniform(0, 0.3))
            began = time.monotonic()
            code, log = service.stop()
            assert time.monotonic() - began < at_most(SHUTDOWN)
        assert code == 0
        assert not load.incorrect
        assert sum(reply.correct for reply in load.replies) == answered(log) - reference, (
            "a reply did not reach its client"
        )
        assert "Traceback" not in log
        assert "exceeded" not in log


def test_sigterm_during_start(releases: Path, rng: random.Random, rounds: int) -> None:
    """Signals are handled from the first log line on; before it, Python's default ends the process."""
    for workers in ("1", "2") * rounds:
        with ServiceProcess(releases, forked=False, TAUGATE_WORKERS=workers) as service:
            until(lambda service=service: '"listening"' in service.log())
            time.sleep(rng.uniform(0, 1))
            code, log = service.stop()
        assert code == 0, log
        assert "Traceback" not in log


def test_sighup_before_ready(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        until(lambda: '"listening"' in service.log())
        while '"ready"' not in service.log():
            assert service.process.poll() is None, service.log()
            service.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        assert service.ready().http.post("/search", json={"query": "permit"}).status_code == 200
        assert scrape(service)["taugate_reload_failed{}"] == 0
        assert service.stop()[0] == 0
