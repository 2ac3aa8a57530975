"""The wall clock is set forward and back by hours: waits and limits depend on elapsed time only."""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest

from taugate.drift.observations import Judgements, SlidingWindow
from taugate.service.access.authorization import digest
from taugate.service.app import create_app
from taugate.service.replicas import Fleet
from taugate.service.settings import Settings
from tests.redis_process import RedisProcess
from tests.service.inprocess import serving, status, until
from tests.service.records import packed

HOURS = 3600.0
PACKAGE = Path(__file__).resolve().parents[2] / "src" / "taugate"
# Modules that need the wall clock, with the reason.
TIME_OF_DAY = {
    "service/access/authorization.py": "a key expires at a date",
    "service/drift/watch.py": (
        "queries of all replicas are compared and logged by date; "
        "judgements are logged by date, and what other replicas keep expires by it"
    ),
    "service/drift/analysis.py": "windows keep dates",
    "service/drift/endpoint_judge.py": "calls of an endpoint are limited by the day, also across restarts",
    "service/drift/judging.py": "old texts of drawn queries are hashed by their date",
    "service/drift/query_log.py": "old texts are hashed by their date",
    "service/drift/worker_store.py": "replies that other workers sent expire by date, as those of other replicas do",
    "retrieval/engines/row_store.py": "a collection has the date of its creation, for pruning from another machine",
    "registry/prune.py": "the age of a collection, by its date",
    "storage/folders.py": "the age of a file, if no process has locked it",
}


class Clock:
    """A wall clock that is `ahead` seconds off; seconds elapse as usual."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead, wall_clock = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: wall_clock() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_only_listed_modules_read_wall_clock() -> None:
    """All other waits, rates and expiries use time.monotonic() or the clock of the event loop."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for folder in ("service", "drift", "registry", "retrieval", "storage")
        for path in (PACKAGE / folder).rglob("*.py")
        if re.search(r"\btime\.time\(", path.read_text(encoding="utf-8"))
    }
    assert readers == {*TIME_OF_DAY}


@pytest.mark.slow
def test_service_survives_clock_changes(releases: Path, clock: Clock) -> None:
    """Searches, judgements, rates and canaries continue; a key is expired exactly while the clock is past its date."""
    key = {"name": "k", "sha256": digest(b"secret").hex(), "scopes": ["search", "feedback", "metrics"]}
    key |= {"queries_per_second": 1.0, "expires": (datetime.now(UTC) + timedelta(hours=3)).isoformat()}
    endless = {"name": "endless", "sha256": digest(b"endless").hex(), "scopes": ["search", "feedback", "metrics"]}
    settings = Settings(releases=releases, keys=orjson.dumps([key, endless]).decode(), encoder_threads=1)
    always = {"X-API-Key": "endless"}

    async def scenario(http: httpx.AsyncClient) -> None:
        await until(lambda: status(http, "/readyz", 200))
        for ahead in (0.0, 6 * HOURS, -6 * HOURS, 0.0):
            before = (
                await http.post("/search", json={"query": f"before {ahead}", "threshold": -2}, headers=always)
            ).json()
            clock.ahead = ahead
            asked = [
                (await http.post("/search", json={"query": f"{ahead} {n}"}, headers=always)).status_code
                for n in range(3)
            ]
            assert asked == [200] * 3
            judged = {"query_id": before["query_id"], "document_id": before["results"][0]["id"], "relevant": True}
            assert (await http.post("/feedback", json=judged, headers=always)).json() == {"status": "accepted"}
            expired = ahead > 3 * HOURS
            of_date = [
                (await http.post("/search", json={"query": "permit"}, headers={"X-API-Key": "secret"})).status_code
                for _ in range(2)
            ]
            assert of_date[0] == (401 if expired else 200), (
                "a jump of the clock neither adds to a rate nor takes from it"
            )
            assert of_date[1] == (401 if expired else 429)
            assert (await http.get("/metrics", headers=always)).status_code == 200
            await asyncio.sleep(1.1)  # the rate's second

    async def run() -> None:
        app = create_app(settings)
        async with serving(app) as http:
            await scenario(http)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_window_expires_after_clock_set_back() -> None:
    def judged(*at: float) -> Judgements:
        same = np.array(at, dtype=np.float32)
        return Judgements(np.array(at), np.arange(len(at), dtype=np.uint64), same, same)

    window = SlidingWindow[Judgements](100, seconds=60)
    window.append(judged(6 * HOURS, 6 * HOURS + 1))
    assert len(window) == sum(map(len, window.at(0.0))) == 2
    window.append(judged(1.0))
    assert [part.at.tolist() for part in window.at(30.0)] == [[0.0, 0.0], [1.0]]
    assert [part.at.tolist() for part in window.at(60.5)] == [[1.0]]
    assert window.at(62.0) == []


def test_reply_of_replica_with_other_clock_is_found(tmp_path: Path) -> None:
    with RedisProcess(tmp_path) as redis:
        fast, slow = (Fleet(redis.url, "release", HOURS) for _ in range(2))
        now = 600 * 1000 + 300.0
        for ahead in (-590.0, -10.0, 0.0, 10.0, 590.0):
            fast.remember(now + ahead, {f"id{ahead}": packed([3])})
            assert slow.find(f"id{ahead}", now) == packed([3])
        fast.close()
        slow.close()
