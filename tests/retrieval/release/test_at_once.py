"""Several processes change one directory, are killed at any moment, and a reader always finds a current release."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retrieval.errors import ReleaseError
from retrieval.release import history
from retrieval.release.catalog import current_id, pointed_id, release_ids
from retrieval.release.layout import CURRENT, SHADOW
from retrieval.release.lineage import earlier
from retrieval.release.promotion import promote, rollback
from retrieval.release.verify import verify
from tests.retrieval.release.clones import clone

KILLS = 30


def start(releases: Path, seed: int, count: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.retrieval.release.changing", str(releases), str(seed), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@contextmanager
def watched(releases: Path) -> Iterator[list[str]]:
    """What a reader beside the changes saw that it must not see."""
    seen: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            try:
                name = current_id(releases)
            except (ReleaseError, OSError) as error:
                seen.append(repr(error))
                continue
            if name is None:
                seen.append("none")

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        ended.set()
        reader.join()


def check(releases: Path) -> None:
    """Each release that is listed verifies, one is current, and the history leads to it."""
    names = release_ids(releases)
    for name in names:
        verify(releases / name)
    current = current_id(releases)
    assert current in names
    events = history.read(releases).events
    done = history.took_effect(events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    moves = [
        event.release
        for event, moved in zip(events, done, strict=True)
        if moved and history.POINTERS.get(event.action) == CURRENT
    ]
    assert moves[-1] == current
    assert current not in earlier(releases)


def test_processes_take_turns(copy: Path, first: str) -> None:
    """Every change of one begins where another's ended: the lines of the history form one chain."""
    processes = [start(copy, seed, count=60) for seed in range(2)]
    with watched(copy) as seen:
        assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        process.communicate()
    assert seen == []
    check(copy)
    events = history.read(copy).events
    assert len(events) > 40
    for pointer in (CURRENT, SHADOW):
        moves = [event for event in events if history.POINTERS.get(event.action) == pointer]
        assert [event.previous for event in moves] == [None, *(event.release for event in moves[:-1])]
    assert history.read(copy).unreadable == []


def test_kill_9_at_any_moment(copy: Path, first: str) -> None:
    rng = random.Random(0)  # noqa: S311 (no secret)
    for seed in range(KILLS):
        with watched(copy) as seen:
            process = start(copy, seed)
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert seen == []
        check(copy)
    last = clone(copy / str(current_id(copy)), -1)
    before = current_id(copy)
    promote(copy, last)
    assert rollback(copy) == before
