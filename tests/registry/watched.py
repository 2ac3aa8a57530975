"""A releases directory that other processes change, and a concurrent reader."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id

_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class ReaderLog:
    """How often a reader looked, and what it saw that it must not see."""

    looks: int = 0
    faults: list[str] = field(default_factory=list)

    def look(self, releases: Path) -> None:
        self.looks += 1
        try:
            if current_id(releases) is None:
                self.faults.append("none")
        except (ReleaseError, OSError) as error:
            self.faults.append(repr(error))


@contextmanager
def watched(releases: Path) -> Iterator[ReaderLog]:
    """Look which release is current, some thousand times a second."""
    seen, ended = ReaderLog(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.look(releases)
            time.sleep(0.0002)  # leave the processors to what is watched

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        ended.set()
        reader.join()


def start_changing(releases: Path, seed: int, *more: str) -> subprocess.Popen[str]:
    """tests/registry/changing.py, once it begins."""
    command = [sys.executable, "-m", "tests.registry.changing", str(releases), "--seed", str(seed), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process
