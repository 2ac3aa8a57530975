"""The history: who changed what, and which changes were interrupted."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.history import (
    CALIBRATION_LOCK,
    CHANGE_LOCK,
    Event,
    calibration_lock,
    change_lock,
    read,
    record,
    took_effect,
)
from taugate.registry.promotion import promote, rollback, shadow
from taugate.registry.prune import prune
from taugate.release.layout import HISTORY
from taugate.storage.files import atomic_write
from taugate.storage.folders import EXCLUSIVE, acquire, is_at

Release = Callable[..., tuple[int, str, str]]


def event(action: str, release: str | None, previous: str | None) -> Event:
    return Event(at="", action=action, release=release, previous=previous, by="")


def test_history_command_lists_events(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    promote(copy, a)
    shadow(copy, b)
    rollback(copy)
    list(prune(copy, 0))
    code, out, error = release("history")
    assert (code, error) == (0, "")
    lines = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert [(line[1], line[2]) for line in lines] == [
        ("promote", first),
        ("promote", a),
        ("shadow", b),
        ("rollback", first),
        ("prune", a),
        ("prune", c),
    ]
    assert lines[1][4] == f"was {first}"
    assert not any("interrupted" in line for line in out.splitlines())


def test_given_name_is_recorded_beside_user(
    copy: Path, first: str, three: list[str], release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUGATE_BY", "job nightly-29 of Anna")
    assert release("promote", three[0])[0] == 0
    monkeypatch.delenv("TAUGATE_BY")
    assert release("rollback")[0] == 0
    code, _, error = release("shadow", three[0], "--by", "Ben")
    assert (code, "--by is deprecated and will be removed in version 0.4; set TAUGATE_BY" in error) == (0, True)
    *_, promoted, rolled_back, shadowed = read(copy).events
    assert [item.named for item in (promoted, rolled_back, shadowed)] == ["job nightly-29 of Anna", None, "Ben"]
    assert promoted.by == rolled_back.by
    assert "named" not in (copy / HISTORY).read_text(encoding="utf-8").splitlines()[-2]
    assert f"by job nightly-29 of Anna, {promoted.by}" in release("history")[1]


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_name_that_is_none_is_refused(copy: Path, release: Release, name: str) -> None:
    before = (copy / HISTORY).read_bytes() if (copy / HISTORY).exists() else b""
    code, _, error = release("prune", "--by", name)
    assert (code, "TAUGATE_BY: give a name of 1 to 200 characters" in error) == (2, True)
    assert ((copy / HISTORY).read_bytes() if (copy / HISTORY).exists() else b"") == before


def test_interrupted_event_is_marked(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    with change_lock(copy):
        record(copy, "promote", a, first)
        record(copy, "shadow", c, None)
        record(copy, "prune", b, None)
    interrupted = ["interrupted" in line for line in release("history")[1].splitlines()]
    assert interrupted == [False, True, True, True]
    promote(copy, b)
    shadow(copy, a)
    interrupted = ["interrupted" in line for line in release("history")[1].splitlines()]
    assert interrupted == [False, True, True, True, False, False]


def test_events_are_tracked_per_pointer() -> None:
    events = [
        event("promote", "a", None),
        event("shadow", "a", None),
        event("promote", "b", "a"),
        event("promote", "c", "a"),  # so b was interrupted
        event("shadow", None, "a"),
        event("rollback", "a", "c"),
        event("promote", "d", "a"),  # the pointer says a
    ]
    assert took_effect(events, {"current": "a", "shadow": None}) == [True, True, False, True, True, True, False]
    assert took_effect([], {"current": None, "shadow": None}) == []


@pytest.mark.parametrize(
    "torn", [b'{"at": "2026', b"{}\n", b"[]\n", b"\xff\xfe\n", b"\0\0\0\0", b'{"at": 1}\n', b"null\n"]
)
def test_invalid_line_is_skipped(copy: Path, first: str, three: list[str], release: Release, torn: bytes) -> None:
    with (copy / HISTORY).open("ab") as file:
        file.write(torn)
    promote(copy, three[0])
    result = read(copy)
    assert [event.release for event in result.events] == [first, three[0]]
    assert result.unreadable == [2]
    assert rollback(copy) == first
    code, out, error = release("history")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "line 2" in error
    assert (copy / HISTORY).read_bytes().endswith(b"}\n")


def test_unknown_fields_and_actions_are_accepted(copy: Path, first: str, release: Release) -> None:
    line = (copy / HISTORY).read_bytes()
    later = line.replace(b'"forced"', b'"ticket":"OPS-1","forced"') + line.replace(b'"promote"', b'"retire"')
    (copy / HISTORY).write_bytes(later)
    assert [event.release for event in read(copy).events] == [first, first]
    assert not any("interrupted" in line for line in release("history")[1].splitlines())


def test_control_characters_are_escaped(copy: Path, release: Release) -> None:
    line = (copy / HISTORY).read_bytes().replace(b'"by":"', rb'"by":"\u001b[2J\u202e')
    (copy / HISTORY).write_bytes(line)
    out = release("history")[1]
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("\n") == 1


def test_missing_history_prints_nothing(copy: Path, release: Release) -> None:
    (copy / HISTORY).unlink()
    assert release("history") == (0, "", "")


def test_unreadable_history_is_refused(copy: Path, release: Release) -> None:
    (copy / HISTORY).unlink()
    (copy / HISTORY).mkdir()
    code, out, error = release("history")
    assert (code, out) == (2, "")
    assert (
        error
        == f"taugate: {copy / HISTORY}: cannot be read (not a plain file); correct its permissions, or move it away\n"
    )


def test_promotion_ended_by_signal_leaves_no_line(
    copy: Path, first: str, three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt  # as after SIGTERM

    before = (copy / HISTORY).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("taugate.registry.promotion.atomic_write", fail)
        with pytest.raises(KeyboardInterrupt):
            promote(copy, three[0])
    assert (copy / HISTORY).read_bytes() == before
    assert (copy / "current").read_text(encoding="ascii").strip() == first


def test_promotion_interrupted_after_it_happened_keeps_its_line(
    copy: Path, three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_late(path: Path, content: bytes) -> None:
        atomic_write(path, content)
        raise KeyboardInterrupt

    monkeypatch.setattr("taugate.registry.promotion.atomic_write", fail_late)
    with pytest.raises(KeyboardInterrupt):
        promote(copy, three[0])
    assert read(copy).events[-1].release == three[0]


PROGRAM = """
import sys
from pathlib import Path
from taugate.registry import history as lock

with getattr(lock, sys.argv[1])(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(kind: str, releases: Path) -> Iterator[subprocess.Popen[str]]:
    """One that holds a lock until its input ends or it is killed."""
    command = [sys.executable, "-c", PROGRAM, kind, str(releases)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        if process.poll() is None:
            process.communicate()


def test_lock_timeout_names_holder(copy: Path, three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CHANGE_SECONDS", 0.2)
    with another_process("change_lock", copy) as process, pytest.raises(ReleaseError) as refused:
        promote(copy, three[0])
    assert str(refused.value).startswith(f"{copy}: process {process.pid} on {socket.gethostname()} has been changing")
    assert "\n" not in str(refused.value)
    promote(copy, three[0])


def test_waiting_change_gets_lock(copy: Path, three: list[str]) -> None:
    with another_process("change_lock", copy) as process:
        waiting = threading.Thread(target=promote, args=(copy, three[0]))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        process.communicate()
        waiting.join(10)
        assert not waiting.is_alive()


def test_killed_process_releases_locks(copy: Path, three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CHANGE_SECONDS", 5)
    for kind in ("change_lock", "calibration_lock"):
        with another_process(kind, copy) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
    promote(copy, three[0])
    with calibration_lock(copy):
        assert (copy / CALIBRATION_LOCK).exists()
    assert not (copy / CALIBRATION_LOCK).exists()


def test_second_calibration_is_refused_at_once(copy: Path) -> None:
    with (
        another_process("calibration_lock", copy) as process,
        pytest.raises(ReleaseError) as refused,
        calibration_lock(copy),
    ):
        raise AssertionError("two at once")
    assert str(refused.value).startswith(f"{copy}: process {process.pid} on {socket.gethostname()} is calibrating")
    with calibration_lock(copy), change_lock(copy):
        pass


def test_calibration_lock_leaves_no_files(tmp_path: Path) -> None:
    for folder in (tmp_path / "new", tmp_path / "deep" / "er"):
        with calibration_lock(folder):
            assert (folder / CALIBRATION_LOCK).is_file()
    assert list(tmp_path.iterdir()) == []
    with calibration_lock(tmp_path / "new"):
        (tmp_path / "new" / "written").mkdir()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["written"]


def test_removed_lock_file_is_locked_again(copy: Path) -> None:
    """Whoever waited for a removed file asks for the new one."""
    with another_process("calibration_lock", copy):
        (copy / CALIBRATION_LOCK).unlink()
        with calibration_lock(copy):
            descriptor = os.open(copy / CALIBRATION_LOCK, os.O_RDWR)
            assert is_at(descriptor, copy / CALIBRATION_LOCK)
            assert not acquire(descriptor, EXCLUSIVE)
            os.close(descriptor)


def test_missing_directory_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="is not writable"), change_lock(tmp_path / "none"):
        raise AssertionError("locked nothing")


def test_full_disk_does_not_prevent_locking(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with change_lock(copy):
        assert (copy / CHANGE_LOCK).exists()
