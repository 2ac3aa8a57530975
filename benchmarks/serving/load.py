"""The load generator, in a process of its own: a job as JSON on stdin, a sample as arrays in the file named there.

Its processor time is not the server's, and its garbage collector stops nothing that is being timed elsewhere.
"""

import asyncio
import gc
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.checkout import environment
from benchmarks.serving.closed_loop import Row, closed_loop
from benchmarks.serving.open_loop import due_times, open_loop, selector
from benchmarks.serving.sample import LoadSample

_SPARE = 240.0  # seconds beyond those of the load: connecting, the last replies, a slow machine


@dataclass(frozen=True)
class LoadJob:
    """A load: which requests are sent to which port, and how.

    Attributes:
        order: Positions in `requests`, again from its start when it ends, unless `once`.
        seconds: For which requests are sent.
        clients: Of a closed loop, or 0.
        rate: Requests a second of an open loop, on at most `connections`.
    """

    port: int
    order: list[int]
    seconds: float
    clients: int = 0
    rate: float = 0.0
    connections: int = 512
    seed: int = 0
    once: bool = False


def run(job: LoadJob, requests: Sequence[bytes], processors: set[int] | None = None) -> LoadSample:
    """Make the load in another process, on some of the processors.

    Raises:
        CalledProcessError: .
        TimeoutExpired: .
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "sample.npz"
        given = asdict(job) | {"requests": [request.decode("latin-1") for request in requests], "target": str(target)}
        command = [sys.executable, "-m", "benchmarks.serving.load"]
        if processors:
            command = ["taskset", "-c", ",".join(map(str, sorted(processors))), *command]
        subprocess.run(
            command, input=json.dumps(given), text=True, check=True, timeout=job.seconds + _SPARE, env=environment()
        )
        return LoadSample.load(target)


async def _rows(job: LoadJob, requests: Sequence[bytes]) -> list[Row]:
    order = iter(job.order) if job.once else itertools.cycle(job.order)
    if job.clients:
        return await closed_loop(job.port, requests, order, job.clients, job.seconds)
    return await open_loop(job.port, requests, order, due_times(job.rate, job.seconds, job.seed), job.connections)


def main() -> None:
    """Do the job on stdin."""
    given = json.load(sys.stdin)
    requests = [request.encode("latin-1") for request in given.pop("requests")]
    target = Path(given.pop("target"))
    job = LoadJob(**given)
    gc.freeze()
    gc.disable()
    few = job.clients or job.connections
    began = time.process_time()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector(few))) as runner:
        rows = runner.run(_rows(job, requests))
    own = time.process_time() - began
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    due, sent, done = (np.ascontiguousarray(table[:, column]) for column in range(3))
    status, size = (table[:, column].astype(np.int64) for column in (3, 4))
    LoadSample(due, sent, done, status, size, job.seconds, own).save(target)


if __name__ == "__main__":
    main()
