"""Wall-clock time of the stages of a calibration, progress of the current task, and speed of a candidate."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

# Name of the task that each stage of a calibration shows.
_TASK_NAMES = {
    "read": "reading the data set",
    "export": "preparing the encoder",
    "adapt": "learning from pairs",
    "admit": "judging on unseen queries",
    "measure": "measuring what changed in the encoder",
    "gate": "trying cheaper ways to search",
    "search": "searching all queries",
    "model": "estimating relevance",
    "abstention": "looking for queries to refuse",
    "query set": "measuring the query set",
    "threshold": "choosing the threshold",
    "write": "writing the report and the release",
}


@dataclass
class Task:
    """A task in progress, for a progress display.

    Attributes:
        name: What is being done.
        total: Units of work, None if unknown.
        done: Finished units.
        cached: Finished units that took no time, because an earlier run had finished them.
        began: `time.perf_counter` at the start.
    """

    name: str
    total: int | None = None
    done: int = 0
    cached: int = 0
    began: float = field(default_factory=time.perf_counter)


class Stopwatch:
    """Wall-clock seconds by stage and in total, and the tasks in progress."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._tasks = [Task("working")]
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside a `with` block to the stage `name`."""
        began = time.perf_counter()
        try:
            with self.task(_TASK_NAMES.get(name, name)):
                yield
        finally:
            self.add(name, time.perf_counter() - began)

    @contextmanager
    def task(self, name: str, total: int | None = None) -> Iterator[Task]:
        """Make a task the current one inside a `with` block, which updates `Task.done`.

        Args:
            name: What is being done, for people to read.
            total: Units of work, None if unknown.
        """
        task = Task(name, total)
        self._tasks.append(task)
        try:
            yield task
        finally:
            self._tasks.remove(task)
            if len(self._tasks) == 1:  # time the work between two stages from here
                self._tasks[0].began = time.perf_counter()

    @property
    def current(self) -> Task:
        """The innermost task in progress; safe to read from another thread."""
        return self._tasks[-1]

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` measured elsewhere to the stage `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def total(self) -> float:
        """Seconds since this stopwatch was created."""
        return time.perf_counter() - self._began


_ROUNDS = 3
_Batch = TypeVar("_Batch", bound=Sized)


def speeds(
    baseline: Callable[[_Batch], object],
    candidate: Callable[[_Batch], object],
    batch: _Batch,
    lone: Sequence[_Batch],
) -> dict[str, float]:
    """Time a candidate against its baseline, as medians over rounds.

    The two alternate within a round, so that changes in the machine's load affect both alike.

    Args:
        baseline: Answers a batch of queries.
        candidate: Answers a batch of queries.
        batch: Queries answered together.
        lone: Batches of one query each.

    Returns:
        `queries_per_second` of the batch and `milliseconds` of a lone query; for the baseline, the same names with the
        prefix `baseline_`.
    """
    ways = {"baseline_": baseline, "": candidate}
    batched: dict[str, list[float]] = {name: [] for name in ways}
    alone: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, answer in ways.items():
            batched[name].append(_seconds(answer, batch))
            alone[name] += [_seconds(answer, query) for query in lone]
    gain = {f"{name}queries_per_second": len(batch) / statistics.median(times) for name, times in batched.items()}
    return gain | {f"{name}milliseconds": 1000 * statistics.median(times) for name, times in alone.items()}


def _seconds(answer: Callable[[_Batch], object], batch: _Batch) -> float:
    began = time.perf_counter()
    answer(batch)
    return time.perf_counter() - began
