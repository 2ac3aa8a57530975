"""`taugate encode` with shards of any size as a process of its own, and what a test may do to its workers.

python encoding_process.py DATA TO ENCODER WORKERS SHARD_ROWS; 0 workers are this process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from taugate.calibration.encoding.shards import RECORD
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.progress import Job
from taugate_engines.encoding.encode import Workers, encode_corpus

_WORKER = "ray::MapWorker"


class EncodingProcess:
    """A run that can be killed.

    Attributes:
        folder: Of the encoding.
    """

    def __init__(self, data: Path, folder: Path, encoder: str, workers: int, shard_rows: int) -> None:
        self.folder = folder
        program = [sys.executable, __file__, str(data), str(folder), encoder, str(workers), str(shard_rows)]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, Any]:
        """Wait for the end; digest and number of shards that were encoded."""
        printed, _ = self.process.communicate(timeout=240)
        assert self.process.returncode == 0, printed
        return json.loads(printed)

    def wait_for_shards(self, count: int) -> None:
        """Wait until so many shards are written, or the run has ended."""
        while len(shards_in(self.folder)) < count and self.process.poll() is None:
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill the command, and wait until its workers have followed; Ray's agents take another minute."""
        workers = self._workers()
        self.process.kill()
        self.process.communicate()
        deadline = time.monotonic() + 60
        while any(_words(each).startswith(_WORKER) for each in workers):
            assert time.monotonic() < deadline, "workers of Ray outlive the command"
            time.sleep(0.05)

    def kill_worker(self) -> bool:
        """Kill one worker; returns whether there was one."""
        for pid in self._workers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has ended since it was listed, as Ray ends idle workers
                continue
            return True
        return False

    def _workers(self) -> list[int]:
        return [pid for pid in descendants(self.process.pid) if _words(pid).startswith(_WORKER)]


def shards_in(folder: Path) -> dict[str, int]:
    """Inode of each finished shard by its name: a shard that is written again has another one."""
    return {each.name: each.stat().st_ino for each in (folder / "shards").glob("*.safetensors")}


def descendants(root: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(after_name[1])
    found, last = [], [root]
    while last:
        last = [pid for pid, parent in parents.items() if parent in last]
        found += last
    return found


def _words(pid: int) -> str:
    """Command line of a process; empty where it has ended and nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def main() -> None:
    data, to, encoder, count, rows = sys.argv[1:]
    done = encode_corpus(data, to, RequestedEncoder(encoder, new=True), Workers(int(count) or None), Job(), int(rows))
    assert (Path(to) / RECORD).is_file()
    sys.stdout.write(json.dumps({"digest": done.record.digest, "encoded": done.encoded}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
