"""Full and read-only disks."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mounted(*command: str) -> bool:
    return subprocess.run(["mount", *command], capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a small file system, or skip the test; another test of the same fault needs no mount."""
    folder.mkdir()
    if not _mounted("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)):
        pytest.skip("this process may not mount file systems")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder: Path, path: Path) -> Iterator[Path]:
    """Provide a folder at a read-only path, by a mount or, if that is not permitted, by file permissions."""
    path.mkdir()
    if _mounted("--bind", str(folder), str(path)) and _mounted("-o", "remount,ro,bind", str(path)):
        try:
            yield path
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        return
    path.rmdir()
    path.symlink_to(folder)
    folders = [folder, *(child for child in folder.rglob("*") if child.is_dir())]
    for child in folders:
        child.chmod(0o555)
    try:
        yield path
    finally:
        for child in folders:
            child.chmod(0o755)


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill a disk up to `leave` free bytes; returns the file that takes the space."""
    ballast = disk / ".ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        os.truncate(ballast, max(0, file.tell() - leave))
    return ballast
