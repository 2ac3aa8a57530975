"""Workers of one service find each other's replies, and count a judgement once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from taugate.retrieval.query import NotComparable
from taugate.service.drift import worker_store as module
from taugate.service.drift.worker_store import FILE, WorkerStore
from taugate.service.pipeline.record import ShownReply
from tests.service import records
from tests.service.drift.processes import InFile

RELEASE, SECONDS = "20260101T000000Z-0123456789ab", 10.0
Opener = Callable[[], WorkerStore]


@pytest.fixture(params=["alone", "in workers"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return lambda: WorkerStore(tmp_path if request.param == "in workers" else None, RELEASE, SECONDS)


@pytest.mark.parametrize("results", [0, 1, 5, 100])
def test_reply_of_any_length_is_remembered(opened: Opener, results: int) -> None:
    store, query_id = opened(), uuid4().hex
    shown = records.packed([*range(1000, 1000 + results)])
    store.remember(1.0, {uuid4().hex: records.packed([1, 2]), query_id: shown})
    assert store.find(query_id, 2.0) == shown
    for unknown in (uuid4().hex, query_id[:16], ""):
        assert store.find(unknown, 2.0) is None


def test_old_reply_is_forgotten(opened: Opener) -> None:
    store, query_id = opened(), uuid4().hex
    store.remember(5.0, {query_id: records.packed([1])})
    assert store.find(query_id, 15.0) is not None
    assert store.find(query_id, 15.1) is None


def test_oldest_replies_and_judgements_are_deleted(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 30)
    monkeypatch.setattr(module, "_MAX_ROWS_IN_MEMORY", 30)
    store, ids = opened(), [uuid4().hex for _ in range(50)]
    for start in range(0, 50, 10):
        store.remember(1.0, {query_id: records.packed([1]) for query_id in ids[start : start + 10]})
    assert [store.find(query_id, 2.0) is not None for query_id in ids] == [False] * 20 + [True] * 30
    assert all(store.count(query_id) == 1 for query_id in ids)
    assert [store.count(query_id) for query_id in reversed(ids)] == [2] * 30 + [1] * 20


def test_workers_count_together_until_it_expires(tmp_path: Path) -> None:
    workers = [WorkerStore(tmp_path, RELEASE, SECONDS) for _ in range(3)]
    assert [worker.count("a:1+") for worker in workers] == [1, 2, 3]
    assert WorkerStore(tmp_path, RELEASE, -1.0).count("a:1+") == 1


def test_workers_read_each_others_replies(tmp_path: Path) -> None:
    workers = [WorkerStore(tmp_path, RELEASE, SECONDS) for _ in range(3)]
    elsewhere = WorkerStore(tmp_path, RELEASE.replace("2026", "2027"), SECONDS)
    ids = [uuid4().hex for _ in workers]
    for worker, query_id in zip(workers, ids, strict=True):
        worker.remember(1.0, {query_id: records.packed([4, 5])})
    for query_id in ids:
        assert all(worker.find(query_id, 2.0) is not None for worker in workers)
        assert elsewhere.find(query_id, 2.0) is None
    workers[0].close()
    assert workers[0].find(ids[0], 2.0) is None
    assert workers[1].find(ids[0], 2.0) is not None
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_replies_of_killed_worker_are_found(tmp_path: Path) -> None:
    stored = records.packed([7]).hex()
    program = f"""
import sys, itertools
from pathlib import Path
from taugate.service.drift.worker_store import WorkerStore
store = WorkerStore(Path({str(tmp_path)!r}), {RELEASE!r}, {SECONDS})
for number in itertools.count():
    store.remember(1.0, {{f"{{sys.argv[1]:0>16}}{{number:016}}": bytes.fromhex({stored!r})}})
    print(number, flush=True)
"""
    for start in range(5):
        with subprocess.Popen([sys.executable, "-c", program, str(start)], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            while worker.stdout.readline() != f"{3 + start}\n":
                pass
            os.kill(worker.pid, signal.SIGKILL)
        after = WorkerStore(tmp_path, RELEASE, SECONDS)
        assert all(after.find(f"{start:016}{number:016}", 2.0) is not None for number in range(3 + start)), start
        assert after.shared


def test_worker_without_usable_file_continues_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    one, other = (WorkerStore(tmp_path, RELEASE, SECONDS) for _ in range(2))
    query_id = uuid4().hex
    one.remember(1.0, {query_id: records.packed([1])})
    assert one.find(query_id, 2.0) is not None
    assert other.find(query_id, 2.0) is None
    assert not one.shared
    assert [one.count("a"), one.count("a")] == [1, 2]


def test_file_that_becomes_unusable_is_left(tmp_path: Path) -> None:
    one = WorkerStore(tmp_path, RELEASE, SECONDS)
    one.remember(1.0, {uuid4().hex: records.packed([1])})
    (tmp_path / FILE).write_bytes(b"no database" * 10_000)
    query_id = uuid4().hex
    one.remember(1.0, {query_id: records.packed([1])})
    assert one.find(query_id, 2.0) is not None
    assert not one.shared
    assert not one.change("state", lambda state: b"new"), "no other worker sees it"


def test_locked_file_delays_no_worker_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)
    one, query_id = WorkerStore(tmp_path, RELEASE, SECONDS), uuid4().hex
    with closing(InFile(tmp_path).open()) as other:
        other.execute("BEGIN IMMEDIATE")
        assert one.find(query_id, 2.0) is None
        assert one.count("a") == 1
        assert not one.change("state", lambda state: b"new")
    assert one.shared
    assert one.change("state", lambda state: b"new")


GOOD = records.packed([1])
STRANGE = {
    "half a number": b"abc",
    "a result too many": GOOD + bytes(4),
    "behind the last": records.packed([10]),
    "before the first": records.packed([-1]),
    "one twice": records.packed([1, 1]),
    "no similarity": GOOD.replace(np.float32(0.9).tobytes(), np.float32(np.nan).tobytes()),
    "a counter": GOOD.replace(np.float32(0.9).tobytes(), np.float32(1e19).tobytes()),
    "no probability": GOOD.replace(np.float32(1).tobytes(), np.float32(0).tobytes()),
    "another reason": GOOD[:8] + b"\xff" + GOOD[9:],
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE.keys())
def test_invalid_shown_results_are_refused(content: bytes) -> None:
    assert ShownReply.read(records.packed([9, 0, 3]), 10, 1.0).results["position"].tolist() == [9, 0, 3]
    with pytest.raises(ValueError):
        ShownReply.read(content, 10, 1.0)


def test_packed_reply_is_read_again() -> None:
    for stage in ("first", "second", None):
        for reason in (None, *NotComparable):
            reply = records.shown([3, 1], key=2**64 - 1, stage=stage, not_comparable=reason)
            read = ShownReply.read(reply.pack(), 10, 1.0)
            assert read.results.tolist() == reply.results.tolist()
            assert read[1:] == reply[1:]
