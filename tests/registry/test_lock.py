"""One change at a time, one calibration at a time, and locks that end with their process."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.history import CALIBRATION_LOCK, CHANGE_LOCK, calibration_lock, change_lock
from taugate.registry.promotion import promote
from taugate.storage.folders import EXCLUSIVE, acquire, is_at

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
