"""The e-detector, against its recursion written down literally and where the truth is known."""

import numpy as np
import pytest

from retrieval.drift.effect import shifted
from retrieval.drift.evidence import Evidence

_ALTERNATIVES = (0.1, 0.2, 0.4, 0.8, 1.6)


def literal(values: np.ndarray, boundaries: np.ndarray, above: np.ndarray) -> list[float]:
    """M_t = max(M_{t−1}, 1) · L_t for each variable and alternative; the largest logarithm after each row."""
    detectors = [
        (column, b, min(max(float(shifted(np.array(b), h if up else -h)), 0.001), 0.999))
        for column, (b, up) in enumerate(zip(boundaries, above, strict=True))
        for h in _ALTERNATIVES
    ]
    m = [1.0] * len(detectors)
    largest = []
    for row in values:
        for i, (column, b, a) in enumerate(detectors):
            x = row[column]
            m[i] = max(m[i], 1.0) * ((1 - x) * (1 - a) / (1 - b) + x * a / b)
        largest.append(float(np.log(max(m))))
    return largest


@pytest.mark.parametrize("whole", [True, False], ids=["zeros and ones", "anything between"])
def test_it_is_the_recursion_however_it_is_cut(whole: bool) -> None:
    rng = np.random.default_rng(0)
    boundaries, above = np.array([0.3, 0.05, 0.9]), np.array([True, True, False])
    values = rng.random((300, 3))
    if whole:
        values = (values < [0.35, 0.1, 0.8]).astype(np.float64)
    evidence = Evidence(boundaries, above)
    cut = np.concatenate([evidence.update(part) for part in np.split(values, [1, 2, 100, 299])])
    assert cut == pytest.approx(literal(values, boundaries, above), abs=1e-9)


@pytest.mark.parametrize(("boundary", "up"), [(0.1, True), (0.5, True), (0.5, False), (0.9, False)])
def test_a_false_alarm_is_as_seldom_as_promised_at_the_boundary_itself(boundary: float, up: bool) -> None:
    """At the worst mean among those that are no drift, runs to a threshold c are c long on average at least."""
    rng = np.random.default_rng(1)
    seldom, runs, length = 100.0, 200, 4000
    evidence = Evidence(np.array([boundary]), np.array([up]))
    times = []
    for _ in range(runs):
        evidence.restart()
        logs = evidence.update((rng.random((length, 1)) < boundary).astype(np.float64))
        crossed = np.flatnonzero(logs >= np.log(seldom * evidence.detectors))
        times.append(crossed[0] + 1 if len(crossed) else length)  # cut short: the true mean is higher
    assert np.mean(times) > seldom


def test_what_is_within_the_boundary_gives_none_and_what_is_beyond_gives_more_with_every_query() -> None:
    rng = np.random.default_rng(2)
    for mean, low, high in ((0.2, -np.inf, 8), (0.45, 40, np.inf)):
        logs = Evidence(np.array([0.3]), np.array([True])).update((rng.random((5000, 1)) < mean).astype(np.float64))
        assert low < logs[-1] < high


def test_restarted_it_remembers_nothing() -> None:
    evidence = Evidence(np.array([0.3]), np.array([True]))
    first = evidence.update(np.ones((5, 1)))
    evidence.restart()
    assert (evidence.update(np.ones((5, 1))) == first).all()
