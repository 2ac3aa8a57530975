"""Disks that are full or cannot be written to."""

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
    """A file system of its own; each fault that needs one has a test beside it that needs none."""
    folder.mkdir()
    if not _mounted("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)):
        pytest.skip("nothing may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder: Path, where: Path) -> Iterator[Path]:
    """The same folder at a path where nobody may write; where nothing may be mounted, its permissions have to do."""
    where.mkdir()
    if _mounted("--bind", str(folder), str(where)) and _mounted("-o", "remount,ro,bind", str(where)):
        try:
            yield where
        finally:
            subprocess.run(["umount", "--lazy", str(where)], check=True)
        return
    where.rmdir()
    where.symlink_to(folder)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for each in folders:
        each.chmod(0o555)
    try:
        yield where
    finally:
        for each in folders:
            each.chmod(0o755)


def fill(disk: Path, leave: int = 0) -> Path:
    """Leave so many bytes of a disk; returns the file that takes the rest."""
    ballast = disk / ".ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        os.truncate(ballast, max(0, file.tell() - leave))
    return ballast
