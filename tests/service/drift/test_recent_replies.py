"""Recent replies can be found in every worker, take bounded memory, and are judged once."""

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from taugate.service.drift import recent_replies as module
from taugate.service.drift.recent_replies import REPEATED, RING_BYTES, Mark, RecentReplies, ReplyRing
from taugate.service.pipeline.record import read_shown, shown_bytes
from tests.service import records

RELEASE, RESULTS, SECONDS = "20260101T000000Z-0123456789ab", 5, 10.0
NEW, COUNTS = Mark(new=True, counts=False), Mark(new=True, counts=True)
Made = Callable[[], RecentReplies]


@pytest.fixture(params=["alone", "in workers"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return lambda: RecentReplies(tmp_path if request.param == "in workers" else None, RELEASE, RESULTS, SECONDS)


@pytest.mark.parametrize("many", [0, 1, 4, 5, 6, 10, 100])
def test_reply_of_any_length_is_remembered(made: Made, many: int) -> None:
    shown, query_id = made(), uuid4().hex
    positions = [*range(1000, 1000 + many)]
    shown.add(uuid4().hex, 1.0, records.shown([1, 2]))
    shown.add(query_id, 1.0, records.shown(positions))
    result = shown.find(query_id, 2.0)
    assert result is not None
    assert result.tolist() == records.shown(positions).tolist()
    for strange in (
        uuid4().hex,
        query_id[:31] + "g",
        query_id[:16] + "0" * 16,
        query_id.upper(),
        "0" * 32,
        "",
        "é" * 32,
    ):
        assert shown.find(strange, 2.0) is None or strange == query_id


def test_old_reply_is_forgotten(made: Made) -> None:
    shown, query_id = made(), uuid4().hex
    shown.add(query_id, 5.0, records.shown([1]))
    assert shown.find(query_id, 15.0) is not None
    assert shown.find(query_id, 15.1) is None
    assert shown.mark(query_id, 1, 15.1, relevant=True) == REPEATED


def test_oldest_replies_are_overwritten(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RING_BYTES", 4096)
    shown, ids = made(), [uuid4().hex for _ in range(500)]
    for at, query_id in enumerate(ids):
        shown.add(query_id, at / 100, records.shown([at, at + 1, at + 2]))
    result = [shown.find(query_id, 5.0) for query_id in ids]
    kept = sum(each is not None for each in result)
    assert kept == 4096 // 77
    assert all(each is None for each in result[:-kept])
    assert [each["position"][0] for each in result[-kept:] if each is not None] == [*range(500 - kept, 500)]


def test_ring_holds_stated_number_of_replies() -> None:
    assert RING_BYTES // 77 > 30 * 3600


def test_judgement_counts_once_per_reply(made: Made) -> None:
    shown, query_id, other = made(), uuid4().hex, uuid4().hex
    for each in (query_id, other):
        shown.add(each, 1.0, records.shown([*range(7)]))  # which take two parts
    for position in (3, 6):
        assert shown.mark(query_id, position, 2.0, relevant=False) == NEW
        assert shown.mark(query_id, position, 2.0, relevant=False) == REPEATED
    assert shown.mark(query_id, 6, 2.0, relevant=True) == COUNTS
    assert shown.mark(query_id, 6, 2.0, relevant=True) == REPEATED
    assert shown.mark(query_id, 3, 2.0, relevant=True) == NEW, "the first of the reply counts"
    assert shown.mark(other, 3, 2.0, relevant=True) == COUNTS


def test_workers_read_each_others_replies(tmp_path: Path) -> None:
    workers = [RecentReplies(tmp_path, RELEASE, RESULTS, SECONDS) for _ in range(3)]
    elsewhere = RecentReplies(tmp_path, RELEASE.replace("2026", "2027"), RESULTS, SECONDS)
    ids = [uuid4().hex for _ in workers]
    for worker, query_id in zip(workers, ids, strict=True):
        worker.add(query_id, 1.0, records.shown([4, 5]))
    for query_id in ids:
        assert all(worker.find(query_id, 2.0) is not None for worker in workers)
        assert elsewhere.find(query_id, 2.0) is None
        assert [worker.mark(query_id, 5, 2.0, relevant=True) for worker in workers] == [COUNTS, REPEATED, REPEATED]
        assert [worker.mark(query_id, 4, 2.0, relevant=False) for worker in workers] == [NEW, REPEATED, REPEATED]
    workers[0].close(forget=True)
    assert workers[1].find(ids[0], 2.0) is None
    assert workers[1].find(ids[2], 2.0) is not None
    workers[2].close(forget=False)
    assert workers[1].find(ids[2], 2.0) is not None


def test_reply_in_two_workers_counts_once(tmp_path: Path) -> None:
    workers = [RecentReplies(tmp_path, RELEASE, RESULTS, SECONDS) for _ in range(2)]
    query_id = uuid4().hex
    for worker in workers:
        worker.add(query_id, 1.0, records.shown([4, 5]))
    assert [worker.mark(query_id, 5, 2.0, relevant=True) for worker in workers] == [COUNTS, REPEATED]
    assert [worker.mark(query_id, 4, 2.0, relevant=False) for worker in workers] == [NEW, REPEATED]


def test_new_worker_resumes_ring_of_killed_one(tmp_path: Path) -> None:
    """So there are never more rings than workers, and a reply of the killed one can still be judged."""
    stored = shown_bytes(records.shown([7])).hex()
    program = f"""
import sys, time
from pathlib import Path
from taugate.service.drift.recent_replies import RecentReplies
from taugate.service.pipeline.record import read_shown
shown = RecentReplies(Path({str(tmp_path)!r}), {RELEASE!r}, {RESULTS}, {SECONDS})
for number in range(3):
    shown.add(sys.argv[1 + number], float(sys.argv[4]) + number, read_shown(bytes.fromhex({stored!r}), 10, 1.0))
print("ready", flush=True)
time.sleep(60)
"""
    for start in range(3):
        ids = [uuid4().hex for _ in range(3)]
        with subprocess.Popen(
            [sys.executable, "-c", program, *ids, str(3 * start)], stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            os.kill(worker.pid, signal.SIGKILL)
        assert len([*tmp_path.glob("*.ring")]) == 1, start
    after = RecentReplies(tmp_path, RELEASE, RESULTS, SECONDS)
    latest = uuid4().hex
    after.add(latest, 9.0, records.shown([8]))
    assert all(after.find(query_id, 10.0) is not None for query_id in (*ids, latest))


def test_full_disk_falls_back_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    one, other = (RecentReplies(tmp_path, RELEASE, RESULTS, SECONDS) for _ in range(2))
    query_id = uuid4().hex
    one.add(query_id, 1.0, records.shown([1]))
    assert one.find(query_id, 2.0) is not None
    assert other.find(query_id, 2.0) is None
    assert one.mark(query_id, 1, 2.0, relevant=True) == COUNTS
    assert not [*tmp_path.glob("*.ring")]


def test_half_written_slot_is_not_read(tmp_path: Path) -> None:
    """The id is written last: a worker that is killed in between leaves nothing that is found."""
    shown, query_id = RecentReplies(tmp_path, RELEASE, RESULTS, SECONDS), uuid4().hex
    shown.add(query_id, 1.0, records.shown([1, 2]))
    (path,) = tmp_path.glob("*.ring")
    with path.open("r+b") as file:
        file.write(bytes(8))
    assert shown.find(query_id, 2.0) is None


def packed(positions: list[int]) -> bytes:
    return shown_bytes(records.shown(positions))


STRANGE = {
    "half a number": b"abc",
    "a position too many": packed([1]) + bytes(4),
    "behind the last": packed([10]),
    "before the first": packed([-1]),
    "one twice": packed([1, 1]),
    "no similarity": np.array([1], dtype=np.int32).tobytes() + np.array([np.nan], dtype=np.float32).tobytes(),
    "a counter": np.array([1], dtype=np.int32).tobytes() + np.array([1e19], dtype=np.float32).tobytes(),
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE.keys())
def test_invalid_shown_results_are_refused(content: bytes) -> None:
    assert read_shown(packed([9, 0, 3]), 10, 1.0)["position"].tolist() == [9, 0, 3]
    with pytest.raises(ValueError):
        read_shown(content, 10, 1.0)


def test_random_ring_is_read_without_error() -> None:
    memory = mmap.mmap(-1, 1 << 16)
    memory[:] = np.random.default_rng(0).bytes(1 << 16)
    ring = ReplyRing(memory, RESULTS)
    ring.resume()
    ids = [bytes(memory[8 * slot : 8 * slot + 8]) for slot in range(ring.slots)]
    for slot, half in enumerate(ids):
        place = 8 * ring.slots + slot * 69
        result = ring.find(half + bytes(memory[place + 8 : place + 16]), -np.inf)
        if result:
            assert len(ring.read(result)) <= RESULTS
