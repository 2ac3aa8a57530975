"""Times a cheaper search against its baseline."""

import statistics
import time
from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

_ROUNDS = 3
_Batch = TypeVar("_Batch", bound=Sized)


def speeds(
    baseline: Callable[[_Batch], object], candidate: Callable[[_Batch], object], batch: _Batch, lone: Sequence[_Batch]
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
