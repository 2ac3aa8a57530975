"""Compare false alarms with their bound on streams whose true means are known, independent and dependent."""

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from benchmarks.drift.plan import DriftPlan
from benchmarks.markdown import Target, table, targets
from taugate.drift.alarm import Alarm, threshold
from taugate.drift.blocks import FIFTHS, Fifth
from taugate.drift.observations import Float64
from taugate.drift.rules import AVERAGE_RUN_LENGTH, BLOCK, MIN_EFFECT
from taugate.drift.signals import Bounds, shifted

HEADING = "The theorem, where the truth is known"
_STREAMS, _QUERIES = 1000, 20_000
_OF_A_FIFTH = BLOCK // FIFTHS
_HORIZONS = (200, 400, 1000)
_OFTEN = 2000.0  # queries to a false alarm, so that there is something to count: of 10⁹ there would be none
_MEAN = 0.05
_UPPER = float(shifted(np.array(_MEAN), MIN_EFFECT))

Stream = Callable[[np.random.Generator], Float64]


def section(plan: DriftPlan) -> str:
    """Simulate streams without drift and count false alarms."""
    covered, wanted = [], []
    for name, stream in _COVERED:
        times = _first_alarms(stream, _OFTEN, plan.seed)
        shares = [float((times <= horizon).mean()) for horizon in _HORIZONS]
        covered.append([name, *(f"{share:.1%}" for share in shares), f"{times.mean():,.0f}"])
        most = max(share / (horizon / _OFTEN) for share, horizon in zip(shares, _HORIZONS, strict=True))
        wanted.append(Target(f"{name}: largest share of the bound", most, at_most=1))
    beyond, alarms = [], 0
    for name, stream, counts in _BEYOND:
        found = int((_first_alarms(stream, AVERAGE_RUN_LENGTH, plan.seed) < _QUERIES).sum())
        alarms += found * counts
        beyond.append([name, found])
    wanted.append(Target("alarms in the rows of the second table up to the one of topics", alarms, at_most=1))
    return f"""\
A theorem bounds the rate of false alarms. Here it is tested on {_STREAMS:,} simulated streams of {_QUERIES:,} queries, each query a number from 0 to 1.

**Covered by the theorem**: given everything before it, no block and no fifth of a block has an expectation above the bound, {_UPPER:.3f}. In
the first rows the expectation is exactly there: the worst case that is not yet drift. The alarm is set to one false alarm in {_OFTEN:,.0f}
queries, so that there is something to count. Within N queries, at most a share N / {_OFTEN:,.0f} of the streams may raise one.

{table(["stream", *(f"false alarm within {horizon:,}, bound {horizon / _OFTEN:.0%}" for horizon in _HORIZONS), "mean queries to one, at least"], covered)}

**Beyond the theorem**: these streams have the mean of the calibration, {_MEAN:g}, but bursts lift single blocks over the bound. Settings are the
defaults: an effect of {MIN_EFFECT:g}, which makes the bound {_UPPER:.3f}, and one false alarm in {AVERAGE_RUN_LENGTH:.0e} queries. "All 1 or all 0" is the strongest burst
possible: all of its queries are alike. Topics with a standard deviation of .05 differ about as much as those of the data sets.

{table(["stream", f"streams of {_STREAMS:,} with an alarm"], beyond)}

{targets(wanted)}
"""


def _first_alarms(stream: Stream, average_run_length: float, seed: int) -> Float64:
    """Count the queries to the first alarm of each stream, or all of them where there is none."""
    rng = np.random.default_rng(seed)
    bounds = Bounds(np.zeros(1), np.array([_UPPER]))
    wide = bounds if average_run_length == _OFTEN else Bounds(np.zeros(1), shifted(np.array([_MEAN]), 2 * MIN_EFFECT))
    times = []
    for _ in range(_STREAMS):
        alarm = Alarm("watched", bounds, wide, threshold(average_run_length, 1, BLOCK))
        times.append(_first(alarm, stream(rng)))
    return np.array(times, dtype=np.float64)


def _first(alarm: Alarm, values: Float64) -> int:
    fifths = values.reshape(-1, FIFTHS, _OF_A_FIFTH).mean(axis=2)
    for number, block in enumerate(fifths):
        for place, mean in enumerate(block):
            whole = block.mean(keepdims=True) if place == FIFTHS - 1 else None
            if alarm.update(Fifth(0, mean[None], _OF_A_FIFTH, whole), slice(None)):
                return number * BLOCK + (place + 1) * _OF_A_FIFTH
    return _QUERIES


def _runs(rng: np.random.Generator, length: int, mean: float) -> Float64:
    """Bursts that begin anywhere in a block, but for those as long as a fifth, which begin with one."""
    offset = 0 if length == _OF_A_FIFTH else int(rng.integers(length))
    bursts = rng.random(-(-_QUERIES // length) + 1) < mean
    return np.repeat(bursts, length)[offset : offset + _QUERIES].astype(float)


def _ar1(rng: np.random.Generator, rho: float) -> Float64:
    """1 where a Gaussian AR(1) is beyond the quantile that gives the mean."""
    noise = rng.normal(size=_QUERIES) * np.sqrt(1 - rho**2)
    latent = np.empty(_QUERIES)
    last = rng.normal()
    for row, step in enumerate(noise.tolist()):
        last = rho * last + step
        latent[row] = last
    found: Float64 = (latent > norm.ppf(1 - _MEAN)).astype(float)
    return found


def _topics(rng: np.random.Generator, length: int, share: Callable[[int], Float64]) -> Float64:
    """Bursts of topics, each with a share of 1 of its own."""
    shares = share(-(-_QUERIES // length) + 1)
    offset = int(rng.integers(length))
    return (rng.random(_QUERIES) < np.repeat(shares, length)[offset : offset + _QUERIES]).astype(float)


def _within(rng: np.random.Generator, rho: float) -> Float64:
    """An AR(1) of the probability itself, between 0 and the bound."""
    noise, latent = rng.normal(size=_QUERIES) * np.sqrt(1 - rho**2), np.empty(_QUERIES)
    last = rng.normal()
    for row, step in enumerate(noise.tolist()):
        last = rho * last + step
        latent[row] = last
    found: Float64 = (rng.random(_QUERIES) < _UPPER * norm.cdf(latent)).astype(float)
    return found


def _beta(rng: np.random.Generator) -> Callable[[int], Float64]:
    """Shares of topics with the mean of the calibration and a standard deviation of .05."""
    size = _MEAN * (1 - _MEAN) / 0.05**2 - 1
    return lambda topics: rng.beta(_MEAN * size, (1 - _MEAN) * size, size=topics)


_COVERED: list[tuple[str, Stream]] = [
    ("independent queries at the bound", lambda rng: (rng.random(_QUERIES) < _UPPER).astype(float)),
    ("each fifth of a block all 1 or all 0, at the bound", lambda rng: _runs(rng, _OF_A_FIFTH, _UPPER)),
    ("AR(1) of the probability up to the bound, correlation .99", lambda rng: _within(rng, 0.99)),
    ("AR(1) of the probability up to the bound, correlation .999", lambda rng: _within(rng, 0.999)),
    ("bursts of 200, topics up to the bound", lambda rng: _topics(rng, 200, lambda n: _UPPER * rng.random(n))),
    ("bursts of 1,000, topics up to the bound", lambda rng: _topics(rng, 1000, lambda n: _UPPER * rng.random(n))),
]
_BEYOND: list[tuple[str, Stream, bool]] = [
    ("AR(1) of 0 and 1, correlation .5", lambda rng: _ar1(rng, 0.5), True),
    ("AR(1) of 0 and 1, correlation .9", lambda rng: _ar1(rng, 0.9), True),
    ("bursts of 20, each all 1 or all 0", lambda rng: _runs(rng, 20, _MEAN), True),
    ("bursts of 50, each all 1 or all 0", lambda rng: _runs(rng, 50, _MEAN), True),
    ("bursts of 200, topics that differ by .05", lambda rng: _topics(rng, 200, _beta(rng)), True),
    ("bursts of 1,000, topics that differ by .05", lambda rng: _topics(rng, 1000, _beta(rng)), False),
    ("AR(1) of 0 and 1, correlation .99", lambda rng: _ar1(rng, 0.99), False),
    ("AR(1) of 0 and 1, correlation .999", lambda rng: _ar1(rng, 0.999), False),
    ("bursts of 200, each all 1 or all 0", lambda rng: _runs(rng, 200, _MEAN), False),
    ("bursts of 1,000, each all 1 or all 0", lambda rng: _runs(rng, 1000, _MEAN), False),
]
