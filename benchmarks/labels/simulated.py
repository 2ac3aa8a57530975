"""Measure coverage and width on simulated queries, where the true share is known and the method was chosen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.labels.asked import SIZES
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.labels.prediction_powered import labels_and_machine
from taugate.calibration.labels.shares import Float64, JudgedSample, UnjudgedSample, labels_alone

HEADING = "Simulated queries: the method was chosen here"
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
_UNJUDGED = 1000
_MAX_TRIALS = 2000
_MIN_COVERAGE, _MAX_RATIO, _GOOD_R_SQUARED, _RATIO_WHERE_GOOD = 0.93, 1.05, 0.4, 0.8

Draw = Callable[[np.random.Generator, float, tuple[int, int]], tuple[Float64, Float64]]


@dataclass(frozen=True)
class _Row:
    """One machine, share and number of labels: R², coverage with and without the machine, and ratio of mean widths."""

    machine: str
    share: float
    labels: int
    r_squared: float
    coverage: float
    alone: float
    ratio: float


def section(experiment: Experiment) -> str:
    """Draw judged and unjudged queries again and again, and count how often the interval holds the true share."""
    trials = min(_MAX_TRIALS, 4 * experiment.splits)
    rows = list(_measured(trials, experiment.seed))
    good = [row for row in rows if row.labels == 50 and row.r_squared >= _GOOD_R_SQUARED]
    balanced = [row for row in good if 0.35 <= row.share <= 0.65]
    wanted = [
        Target("smallest coverage", min(row.coverage for row in rows), at_least=_MIN_COVERAGE),
        Target("largest ratio of widths", max(row.ratio for row in rows), at_most=_MAX_RATIO),
        Target(
            "largest ratio with 50 labels and R² ≥ .4, share between .35 and .65",
            max(row.ratio for row in balanced),
            at_most=_RATIO_WHERE_GOOD,
        ),
        Target("the same, any share", max(row.ratio for row in good), at_most=_RATIO_WHERE_GOOD),
    ]
    cells = []
    for machine in dict.fromkeys(row.machine for row in rows):
        for labels in SIZES:
            some = [row for row in rows if (row.machine, row.labels) == (machine, labels)]
            r_squared = [row.r_squared for row in some]
            cells.append(
                [
                    machine,
                    labels,
                    f"{share(min(r_squared), 2)}–{share(max(r_squared), 2)}",
                    share(min(row.alone for row in some)),
                    share(min(row.coverage for row in some)),
                    f"{share(min(row.ratio for row in some), 2)}–{share(max(row.ratio for row in some), 2)}",
                ]
            )
    header = ["machine", "labels", "R²", "coverage, labels alone", "coverage, both", "ratio of widths"]
    return f"""\
Each row covers {len(_SHARES)} true shares from {share(min(_SHARES), 1)} to {share(max(_SHARES), 1)}, with {trials:,} trials each: it has the smallest coverage, and the
range of R² and of the ratio. A trial has {_UNJUDGED:,} unjudged queries. *Probabilities* are a machine that gives the true probability of
each query; *judge* is one that says yes or no, and errs at the two rates given.

{targets(wanted)}

A judge whose mistakes are rare and all of one kind is the hardest case: 25 labels often show none of them.

{table(header, cells)}
"""


def _measured(trials: int, seed: int) -> Iterator[_Row]:
    for number, (machine, draw) in enumerate(_machines().items()):
        for truth in _SHARES:
            outcomes, said = draw(np.random.default_rng([seed, number]), truth, (100_000, 1))
            spread = said.std() > 0
            r_squared = float(np.corrcoef(outcomes[:, 0], said[:, 0])[0, 1] ** 2) if spread else 0.0
            for labels in SIZES:
                rng = np.random.default_rng([seed, number, labels, round(100 * truth)])
                outcomes, said = draw(rng, truth, (labels, trials))
                unseen = draw(rng, truth, (_UNJUDGED, trials))[1]
                judged = JudgedSample(outcomes, said, np.arange(labels))
                unjudged = UnjudgedSample(unseen, np.arange(labels, labels + _UNJUDGED))
                both, alone = labels_and_machine(judged, unjudged, 0.95), labels_alone(judged, 0.95)
                yield _Row(
                    machine,
                    truth,
                    labels,
                    r_squared,
                    float(np.mean((both.lower <= truth) & (truth <= both.upper))),
                    float(np.mean((alone.lower <= truth) & (truth <= alone.upper))),
                    float(both.width.mean() / alone.width.mean()),
                )


def _machines() -> dict[str, Draw]:
    machines = {
        f"probabilities, spread {spread:g}": _probabilities(spread) for spread in (0.1, 0.3, 1.0, 1.4, 3.0, 10.0)
    }
    rates = ((0, 0), (0.02, 0.02), (0.05, 0), (0, 0.1), (0.1, 0), (0.1, 0.1), (0.17, 0.17), (0, 0.3), (0.5, 0.5))
    return machines | {f"judge, {false:.0%} and {missed:.0%} wrong": _judge(false, missed) for false, missed in rates}


def _probabilities(spread: float) -> Draw:
    def draw(rng: np.random.Generator, truth: float, size: tuple[int, int]) -> tuple[Float64, Float64]:
        chances = rng.beta(truth * spread, (1 - truth) * spread, size)
        return (rng.random(size) < chances).astype(np.float64), chances

    return draw


def _judge(false: float, missed: float) -> Draw:
    def draw(rng: np.random.Generator, truth: float, size: tuple[int, int]) -> tuple[Float64, Float64]:
        outcome, luck = rng.random(size) < truth, rng.random(size)
        return outcome.astype(np.float64), np.where(outcome, luck >= missed, luck < false).astype(np.float64)

    return draw
