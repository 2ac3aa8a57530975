"""E-detectors, against their recursion in a plain loop and against the guarantees of the theorem."""

from collections.abc import Callable

import numpy as np
import pytest

from taugate.drift.alarm import EDetectors

STAKES = (1 / 8, 1 / 2, 0.95)
LOWER, UPPER = np.array([0.2, 0.0, 0.6, 0.0]), np.array([0.4, 0.05, 1.0, 1.0])


def literal(blocks: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> list[float]:
    """M = max(M, 1) · L for every bound that can be crossed and every stake; log of the mean after each block."""
    bets = []
    for variable, (low, high) in enumerate(zip(lower, upper, strict=True)):
        for stake in STAKES:
            if low > 0:
                bets.append((variable, -stake / (1 - low), low))
            if high < 1:
                bets.append((variable, stake / high, high))
    m = [0.0] * len(bets)
    logs = []
    for means in blocks:
        for i, (variable, rate, bound) in enumerate(bets):
            m[i] = max(m[i], 1.0) * (1 + rate * (means[variable] - bound))
        logs.append(float(np.log(sum(m) / len(m))))
    return logs


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random((300, 4)),
        lambda rng: (rng.random((300, 4)) < 0.3).astype(np.float64),
        lambda rng: rng.beta(20, 60, size=(300, 4)),
    ],
    ids=["anything", "zeros and ones", "near the bounds"],
)
def test_evidence_follows_recursion(draw: Callable[[np.random.Generator], np.ndarray]) -> None:
    blocks = draw(np.random.default_rng(0))
    evidence = EDetectors(LOWER, UPPER)
    logs = []
    for means in blocks:
        evidence.update(means)
        logs.append(evidence.log)
    assert logs == pytest.approx(literal(blocks, LOWER, UPPER), abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_trivial_bound_is_not_watched(value: float) -> None:
    nothing = EDetectors(np.zeros(2), np.ones(2))
    nothing.update(np.full(2, value))
    assert nothing.log == -np.inf
    assert EDetectors(LOWER, UPPER).logs.shape == (4, len(STAKES))  # two lower ones and two upper ones


def test_huge_evidence_stays_finite() -> None:
    evidence = EDetectors(LOWER, UPPER)
    for _ in range(2000):
        evidence.update(np.array([1.0, 1.0, 0.0, 0.5]))
    assert 2000 < evidence.log < np.inf


def test_calm_period_does_not_lower_evidence() -> None:
    """What follows it weighs as much as for a detector that has just begun."""
    evidence, fresh = EDetectors(LOWER, UPPER), EDetectors(LOWER, UPPER)
    for _ in range(5000):
        evidence.update(np.array([0.3, 0.0, 0.8, 0.5]))
    assert evidence.log < 0
    for each in (evidence, fresh):
        each.update(np.array([0.9, 0.3, 0.1, 0.5]))
    assert evidence.log == fresh.log > 0


def test_restart_clears_evidence() -> None:
    evidence, fresh = EDetectors(LOWER, UPPER), EDetectors(LOWER, UPPER)
    for means in np.random.default_rng(1).random((20, 4)):
        evidence.update(means)
    evidence.restart()
    means = np.array([0.9, 0.3, 0.1, 0.5])
    evidence.update(means)
    fresh.update(means)
    assert evidence.log == fresh.log > 0


@pytest.mark.parametrize(
    ("bounds", "mean"),
    [((0.0, 0.3), 0.4), ((0.7, 1.0), 0.5), ((0.0, 0.02), 0.06), ((0.99, 1.0), 0.982), ((0.4, 0.6), 0.5)],
    ids=["above", "below", "a rare thing", "as rare as wrong documents", "within"],
)
def test_growth_matches_simulation(bounds: tuple[float, float], mean: float) -> None:
    """20,000 blocks of 200 independent queries, whose variable is 0 or 1."""
    many = 20_000
    means = np.random.default_rng(2).binomial(200, mean, size=many) / 200
    evidence = EDetectors(np.full(many, bounds[0]), np.full(many, bounds[1]))
    evidence.update(means)  # from 0, so that this is log L
    simulated = evidence.logs.reshape(-1, many, len(STAKES))  # bounds, blocks, stakes
    growth, spread = EDetectors(np.array(bounds[:1]), np.array(bounds[1:])).growth(np.array([mean]), 200)
    assert growth == pytest.approx(simulated.mean(axis=1), rel=0.02, abs=0.002)
    assert spread == pytest.approx(simulated.std(axis=1), rel=0.1)


# What follows plays many streams at once: each has variables of its own in one Evidence. `Draw` gives the means of the
# next block, (runs,), from each stream's evidence so far, with an expectation that is the bound: whatever came before.
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
RUNS = 2000
BOUND = 0.02
AVERAGE_STAKE = sum(STAKES) / len(STAKES)


def evidence_of_each(evidence: EDetectors, runs: int) -> np.ndarray:
    """Mean of M over the bounds and stakes of each of the runs, whose variables lie side by side."""
    bounds = evidence.logs.reshape(-1, runs, len(STAKES))
    return np.asarray(np.exp(np.minimum(bounds, 50)).mean(axis=(0, 2)))


def blocks_until(c: float, evidence: EDetectors, draw: Callable[[np.ndarray], np.ndarray], longest: int) -> np.ndarray:
    """How many blocks each stream takes, at most `longest`.

    Args:
        draw: Means of all variables from the evidence so far.
    """
    times = np.full(RUNS, longest)
    running = np.ones(RUNS, dtype=bool)
    now = np.ones(RUNS)
    for block in range(1, longest):
        evidence.update(draw(now))
        now = evidence_of_each(evidence, RUNS)
        times[running & (now >= c)] = block
        running &= now < c
    return times


def two_points(rng: np.random.Generator, low: np.ndarray, high: np.ndarray, mean: float = BOUND) -> np.ndarray:
    """One of the two with this mean."""
    return np.asarray(np.where(rng.random(RUNS) * (high - low) < mean - low, high, low))


def independent(rng: np.random.Generator, now: np.ndarray) -> np.ndarray:
    return (rng.random(RUNS) < BOUND).astype(np.float64)


def all_or_nothing(c: float) -> Draw:
    """The worst there is: nothing, which a new beginning forgives, until one block is just what c takes."""
    enough = BOUND * (1 + (c - 1) / AVERAGE_STAKE)
    return lambda rng, now: two_points(rng, np.zeros(RUNS), np.full(RUNS, enough))


def gambler(c: float) -> Draw:
    """Bets all while it has nothing; what it has won, on as little as takes it to c, or on doubling it."""

    def draw(rng: np.random.Generator, now: np.ndarray) -> np.ndarray:
        needed = BOUND * (1 + (c / np.maximum(now, 1) - 1) / AVERAGE_STAKE)
        half = np.where(rng.random(RUNS) < 0.5, 1.0, 0.5)
        low = np.where(now > 1, 0.5 * BOUND, 0.0)
        return two_points(rng, low, np.clip(needed * half, 1.01 * BOUND, 1.0))

    return draw


def restless(c: float) -> Draw:
    """After a block above the bound the next one varies as much as it can, after one below hardly."""
    last = np.zeros(RUNS)

    def draw(rng: np.random.Generator, now: np.ndarray) -> np.ndarray:
        wild = last > BOUND
        low, high = np.where(wild, 0.0, 0.5 * BOUND), np.where(wild, 0.4, 3 * BOUND)
        last[:] = two_points(rng, low, high)
        return last

    return draw


@pytest.mark.parametrize("c", [5.0, 20.0])
@pytest.mark.parametrize("case", [lambda c: independent, all_or_nothing, gambler, restless])
@pytest.mark.parametrize("below", [False, True], ids=["upper", "lower"])
def test_run_length_at_bound_is_at_least_c(below: bool, case: Callable[[float], Draw], c: float) -> None:
    rng = np.random.default_rng(3)
    zeros, ones = np.zeros(RUNS), np.ones(RUNS)
    evidence = EDetectors(ones - BOUND, ones) if below else EDetectors(zeros, zeros + BOUND)
    draw = case(c)
    times = blocks_until(c, evidence, lambda now: 1 - draw(rng, now) if below else draw(rng, now), int(12 * c))
    assert times.mean() - 3 * times.std() / np.sqrt(RUNS) > c  # those that were cut short take longer


def test_worst_case_run_length_matches_formula() -> None:
    """Each trial is lost for the price of what a new beginning forgives, so that c is reached as soon as can be."""
    c = 20.0
    rng, draw = np.random.default_rng(4), all_or_nothing(c * (1 - 1e-9))
    evidence = EDetectors(np.zeros(RUNS), np.full(RUNS, BOUND))
    times = blocks_until(c * (1 - 1e-6), evidence, lambda now: draw(rng, now), int(20 * c))
    assert times.mean() == pytest.approx(1 + (c - 1) / AVERAGE_STAKE, rel=0.1)


@pytest.mark.parametrize("together", [1, 0.5, 0])
def test_run_length_holds_for_dependent_variables(together: float) -> None:
    """Three variables with both bounds each; of two that move together one is sometimes the other's opposite."""
    c = 10.0
    rng = np.random.default_rng(5)
    centre = np.concatenate([np.full(RUNS, 0.1), np.full(RUNS, 0.5), np.full(RUNS, 0.5)])
    evidence = EDetectors(centre - 0.01, centre + 0.01)
    upper, lower = centre[:RUNS] + 0.01, centre[RUNS:] - 0.01

    def draw(now: np.ndarray) -> np.ndarray:
        """The first is at its upper bound on average, the two others at their lower one."""
        first = (rng.random(RUNS) < upper).astype(np.float64)
        shared = rng.random(RUNS)
        same = rng.random(RUNS) < together
        second = (shared < lower[:RUNS]).astype(np.float64)
        third = (np.where(same, shared, 1 - shared) < lower[RUNS:]).astype(np.float64)
        return np.concatenate([first, second, third])

    times = blocks_until(c, evidence, draw, 300)
    assert times.mean() - 3 * times.std() / np.sqrt(RUNS) > c


def test_run_length_beyond_bound_is_short() -> None:
    rng = np.random.default_rng(6)
    evidence = EDetectors(np.zeros(RUNS), np.full(RUNS, BOUND))
    times = blocks_until(20.0, evidence, lambda now: (rng.random(RUNS) < 10 * BOUND).astype(np.float64), 200)
    assert times.mean() < 20
