"""Wall-clock time: of the stages of a calibration, and of a candidate beside what it would replace."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TypeVar


class Stopwatch:
    """Wall-clock seconds by stage, and in total since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside a `with` block to the stage `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)

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

    baseline, candidate: answer a batch of queries; batch: queries answered together; lone: batches of one query each.
    Returns `queries_per_second` of the batch and `milliseconds` of a query alone; of the baseline with `baseline_` in
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
