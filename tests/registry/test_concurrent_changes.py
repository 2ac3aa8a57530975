"""Several processes change one directory and are killed at random; a reader always finds a current release."""

import random
import signal
import time
from pathlib import Path

import pytest

from taugate.registry import history
from taugate.registry.catalog import current_id, pointed_id, release_ids
from taugate.registry.promotion import promote, rollback, rollback_targets
from taugate.release.layout import CURRENT, SHADOW
from taugate.release.verify import verify
from tests.registry.watched import start_changing, watched
from tests.release.clones import clone

pytestmark = pytest.mark.slow


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
    assert current not in rollback_targets(releases)


def test_concurrent_changes_form_one_history(copy: Path, first: str) -> None:
    """Every change of one begins where another's ended: the lines of the history form one chain."""
    processes = [start_changing(copy, seed, "--count", "60") for seed in range(2)]
    with watched(copy) as seen:
        assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        process.communicate()
    assert seen.faults == []
    check(copy)
    events = history.read(copy).events
    assert len(events) > 40
    for pointer in (CURRENT, SHADOW):
        moves = [event for event in events if history.POINTERS.get(event.action) == pointer]
        assert [event.previous for event in moves] == [None, *(event.release for event in moves[:-1])]
    assert history.read(copy).unreadable == []


@pytest.mark.parametrize("kills", [10, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_killed_change_leaves_directory_valid(kills: int, copy: Path, first: str) -> None:
    rng = random.Random(0)  # noqa: S311 (no secret)
    for seed in range(kills):
        with watched(copy) as seen:
            process = start_changing(copy, seed)
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert seen.faults == []
        check(copy)
    last = clone(copy / str(current_id(copy)), -1)
    before = current_id(copy)
    promote(copy, last)
    assert rollback(copy) == before
