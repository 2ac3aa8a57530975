"""Open many releases, each of which may crash its process, and report what happens."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.checkout import environment

_PATIENCE = 60  # seconds for one release: the sound one takes less than one
_WORKER = ("-m", "benchmarks.reliability.open_releases")


@dataclass(frozen=True)
class Attempt:
    """The result of opening one release in another process.

    Attributes:
        outcome: Refused, served, crashed or hung.
        said: The message.
        peak: Resident bytes.
    """

    outcome: str
    said: str
    peak: int


def attempts(folders: Iterable[Path]) -> Iterator[Attempt]:
    """Open each folder in order; a process that ends or hangs is counted against the folder, and replaced."""
    opener = _Opener()
    try:
        for folder in folders:
            yield opener.open(folder)
    finally:
        opener.end()


class _Opener:
    def __init__(self) -> None:
        self._begin()

    def open(self, folder: Path) -> Attempt:
        print(folder, file=self._process.stdin, flush=True)
        try:
            line = self._lines.get(timeout=_PATIENCE)
        except queue.Empty:
            line = None
        if line:
            return Attempt(**json.loads(line))
        outcome = "hung" if line is None else "crashed"
        self.end()
        attempt = Attempt(outcome, f"{outcome}: exit code {self._process.returncode}", 0)
        self._begin()
        return attempt

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *_WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()


def _read(pipe: IO[str] | None, lines: "queue.Queue[str]") -> None:
    for line in pipe or ():
        lines.put(line)
    lines.put("")
