"""Count queries until a deployment alarms: one process, ten replicas with one state, ten that share nothing."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations

REPLICAS = 10
_LOOK = 250  # queries of the deployment between two looks of a replica: fifty a second, a look every five seconds

BEFORE, MOST = 5_000, 40_000  # ordinary queries before a change, and those after it before a run is given up
CHUNK = 2000  # queries at a time; a multiple of the bursts of benchmarks.drift.detection

New = Callable[[], Monitor]
Draw = Callable[[np.random.Generator], Observations]
Sharing = Callable[[New, Observations, Iterable[Observations]], float]


def alone(new: New, before: Observations, after: Iterable[Observations]) -> float:
    """Measure the delay of one process that sees all of the traffic."""
    monitor, passed = new(), 0
    monitor.update(before)
    for part in after:
        for result in monitor.process(part):
            if any(change.on for change in result.changes):
                return passed + result.fifth.row + 1
        passed += len(part)
    return np.inf


def shared(new: New, before: Observations, after: Iterable[Observations]) -> float:
    """Ten replicas that take turns with one state, as with Redis: until the last of them knows of the alarm."""
    replicas, passed = [new() for _ in range(REPLICAS)], 0
    replicas[0].update(before)
    state = replicas[0].pack()
    for part in after:
        for own in _looks(part):
            for replica, seen in zip(replicas, own, strict=True):
                replica.restore(state)
                replica.update(seen)
                state = replica.pack()
            passed += sum(map(len, own))
            if any(alarm.on for alarm in replicas[-1].alarms):
                return passed + _LOOK  # with their next look all of them know
    return np.inf


def averaged(new: New, before: Observations, after: Iterable[Observations]) -> float:
    """Measure the delay of ten replicas that share nothing, until the average of their evidence reaches that of an alarm, as Prometheus averages it."""
    replicas = [new() for _ in range(REPLICAS)]
    for replica, own in zip(replicas, _dealt(before), strict=True):
        replica.update(own)
    passed = 0
    for part in after:
        for looked in _looks(part):
            for replica, seen in zip(replicas, looked, strict=True):
                replica.update(seen)
            passed += sum(map(len, looked))
            threshold = replicas[0].threshold
            logs = np.array([[alarm.share_of_threshold for alarm in replica.alarms] for replica in replicas])
            if (np.log(np.exp(logs * threshold).mean(axis=0)) / threshold >= 0.999).any():
                return passed
    return np.inf


def delays(sharing: Sharing, new: New, before: Draw, after: Draw, *, runs: int, seed: int) -> NDArray[np.float64]:
    """Count the queries from a change of the traffic to the first alarm.

    Args:
        sharing: Who watches the traffic.
        new: Builds a monitor that has seen nothing.
        before: Draws the ordinary traffic, BEFORE queries.
        after: Draws the next CHUNK queries after the change.
        runs: Number of repetitions.
        seed: Seed of the repetitions.

    Returns:
        (runs,) queries; infinite if there is no alarm.
    """
    found = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        ordinary = before(rng)
        found.append(sharing(new, ordinary, (after(rng) for _ in range(0, MOST, CHUNK))))
    return np.array(found)


def median_and_tail(found: NDArray[np.float64]) -> str:
    """Format delays as `median / 90th percentile`."""
    return f"{_count(np.median(found))} / {_count(np.percentile(found, 90, method='higher'))}"


def _count(queries: float) -> str:
    return "none" if np.isinf(queries) else f"{queries:,.0f}"


def _looks(part: Observations) -> Iterator[list[Observations]]:
    for start in range(0, len(part), _LOOK):
        yield _dealt(part.take(slice(start, start + _LOOK)))


def _dealt(seen: Observations) -> list[Observations]:
    """To each replica its tenth."""
    return [seen.take(slice(replica, None, REPLICAS)) for replica in range(REPLICAS)]
