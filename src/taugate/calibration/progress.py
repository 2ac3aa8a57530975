"""Wall-clock time: of the stages of a calibration, of the work under way, and of a candidate beside its baseline."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

# What is under way during each stage of a calibration, in words.
_DOING = {
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
    """Work that is under way, for whoever shows it.

    Attributes:
        name: What is being done.
        total: Units of it, None where nobody can say.
        done: Units that are finished.
        known: Those of them that took no time, as they were finished by an earlier run.
        began: `time.perf_counter` at its start.
    """

    name: str
    total: int | None = None
    done: int = 0
    known: int = 0
    began: float = field(default_factory=time.perf_counter)


class Stopwatch:
    """Wall-clock seconds by stage, and in total since it was made; it also knows what is under way."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._tasks = [Task("working")]
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside a `with` block to the stage `name`."""
        began = time.perf_counter()
        try:
            with self.task(_DOING.get(name, name)):
                yield
        finally:
            self.add(name, time.perf_counter() - began)

    @contextmanager
    def task(self, name: str, total: int | None = None) -> Iterator[Task]:
        """Make a task the current one inside a `with` block, which counts what is done of it.

        Args:
            name: What is being done, in words.
            total: Units of work, None where nobody can say.
        """
        task = Task(name, total)
        self._tasks.append(task)
        try:
            yield task
        finally:
            self._tasks.remove(task)
            if len(self._tasks) == 1:  # what lies between two stages begins anew
                self._tasks[0].began = time.perf_counter()

    @property
    def current(self) -> Task:
        """The innermost task that is under way. Another thread may ask."""
        return self._tasks[-1]

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` measured elsewhere to the stage `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def total(self) -> float:
        """Seconds since this stopwatch was made."""
        return time.perf_counter() - self._began


_ROUNDS = 3
_Batch = TypeVar("_Batch", bound=Sized)


def speeds(
    baseline: Callable[[_Batch], object],
    candidate: Callable[[_Batch], object],
    batch: _Batch,
    lone: Sequence[_Batch],
) -> dict[str, float]:
    """Time a candidate beside what it would replace.

    Medians of rounds in which the two take turns: the machine's moods are the same for both.

    Args:
        baseline: Answer a batch of queries.
        candidate: Answer a batch of queries.
        batch: Queries answered together.
        lone: Batches of one query each.

    Returns:
        `queries_per_second` of the batch and `milliseconds` of a query alone; of the baseline with `baseline_` in
        front.
    """
    ways = {"baseline_": baseline, "": candidate}
    batched: dict[str, list[float]] = {name: [] for name in ways}
    alone: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, answer in ways.items():
            batched[name].append(_seconds(answer, batch))
            alone[name] += [_seconds(answer, one) for one in lone]
    gain = {f"{name}queries_per_second": len(batch) / statistics.median(times) for name, times in batched.items()}
    return gain | {f"{name}milliseconds": 1000 * statistics.median(times) for name, times in alone.items()}


def _seconds(answer: Callable[[_Batch], object], batch: _Batch) -> float:
    began = time.perf_counter()
    answer(batch)
    return time.perf_counter() - began
