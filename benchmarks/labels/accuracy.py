"""Measure how well accuracy is known from few labels, on every public set."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.checkout import ROOT
from benchmarks.experiment import Experiment
from benchmarks.labels.asked import CROPS, JUDGES, SETS, SIZES, asked_set
from benchmarks.line_chart import draw
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.charts.chart import Dot
from taugate.calibration.labels.prediction_powered import labels_and_machine
from taugate.calibration.labels.shares import labels_alone

HEADING = "Accuracy on public sets"


@dataclass(frozen=True)
class _Row:
    """One set, machine and number of labels.

    Attributes:
        truth: Accuracy of all queries.
        said: What the machine alone says.
        powered: Share of resamples in which the machine had a say.
        possible: The ratio that R² and the number of unjudged queries allow; the others as on the page.
    """

    name: str
    machine: str
    labels: int
    truth: float
    said: float
    r_squared: float
    alone: float
    coverage: float
    powered: float
    width: float
    ratio: float
    largest_ratio: float
    possible: float


def section(experiment: Experiment) -> str:
    """Label queries of every set again and again, and compare the intervals with the accuracy of all."""
    rows = [row for name in experiment.wanted(SETS) for row in _rows(experiment, name)]
    good = [row for row in rows if row.labels == 50 and row.r_squared >= 0.4]
    wanted = [
        Target("smallest coverage, both", min(row.coverage for row in rows), at_least=0.93),
        Target("largest ratio of widths in any resample", max(row.largest_ratio for row in rows), at_most=1.05),
    ]
    missed = [row for row in good if row.ratio > 0.8]
    if good:
        most = max(row.ratio for row in good)
        wanted.append(Target("largest mean ratio with 50 labels and R² ≥ .4", most, at_most=0.8))
    sizes = " / ".join(map(str, SIZES))
    header = ["set", "machine", "R²", "accuracy", "machine alone"]
    header += [
        f"{what}: {sizes} labels" for what in ("width, labels alone", "coverage, labels alone", "coverage, both")
    ]
    header += ["machine has a say", "ratio of widths"]
    cells = []
    for at in range(0, len(rows), len(SIZES)):
        same = rows[at : at + len(SIZES)]
        first = same[0]
        facts: list[object] = [first.name, first.machine, *map(share, (first.r_squared, first.truth, first.said))]
        columns = [("width", 2), ("alone", 3), ("coverage", 3), ("powered", 2), ("ratio", 2)]
        facts += [" / ".join(share(getattr(row, of), digits) for row in same) for of, digits in columns]
        cells.append(facts)
    return f"""\
Accuracy is the share of queries with a relevant document among their top 5. *Machine alone* is the mean of the machine's scores over
all queries; nothing says how wrong it is. *Width* is that of the 95 % interval, and *ratio* is the mean width with the machine,
divided by the mean width without. *Machine has a say* is the share of resamples in which the labels do not decide alone; they
do where the ratio would exceed 1.05.

{targets(wanted)}

{_of_the_model(rows)}

{_words(good, missed)}

{_drawing(rows)}

{table(header, cells)}
"""


def _rows(experiment: Experiment, name: str) -> list[_Row]:
    asked = asked_set(experiment.data, name, experiment.seed)
    outcomes = asked.hits
    truth = float(outcomes.true.mean())
    measured: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    unjudged_queries = np.inf
    for resample in asked.resamples(experiment.splits, experiment.seed):
        unjudged_queries = min(unjudged_queries, *(len(drawn.unjudged) for drawn in resample.values()))
        for labels, drawn in resample.items():
            for machine in (CROPS, *JUDGES):
                judged, unjudged = drawn.samples(outcomes, machine)
                both, alone = labels_and_machine(judged, unjudged, 0.95), labels_alone(judged, 0.95)
                measured.setdefault((machine, labels), []).append(
                    (
                        float(alone.lower[0] <= truth <= alone.upper[0]),
                        float(both.lower[0] <= truth <= both.upper[0]),
                        float(both.weight[0] > 0),
                        alone.width[0],
                        both.width[0],
                        both.width[0] / alone.width[0],
                    )
                )
    rows = []
    for machine, labels in product((CROPS, *JUDGES), SIZES):
        trials = measured[machine, labels]
        held_alone, held, powered, width, width_of_both, _ = np.mean(trials, axis=0).tolist()
        rows.append(
            _Row(
                name,
                machine,
                labels,
                truth,
                float(outcomes.scores[machine].mean()),
                outcomes.r_squared(machine),
                held_alone,
                held,
                powered,
                width,
                width_of_both / width,
                max(trial[-1] for trial in trials),
                float(np.sqrt(1 - outcomes.r_squared(machine) / (1 + labels / unjudged_queries))),
            )
        )
    return rows


def _of_the_model(rows: list[_Row]) -> str:
    some = [row for row in rows if row.machine == CROPS and row.labels == 50]
    explained = [row.r_squared for row in some]
    return (
        f"The model fitted on crops explains {share(min(explained), 2)} to {share(max(explained), 2)} of the variance, so with 50 labels it narrows the\n"
        f"interval by {100 * (1 - min(row.ratio for row in some)):.0f} % at most. It takes a better judge to save labels."
    )


def _words(good: list[_Row], missed: list[_Row]) -> str:
    if not good:
        return "No machine has an R² of .4 or more on these sets."
    reached = f"With R² ≥ .4 and 50 labels, the ratio is at most .8 in {len(good) - len(missed)} of {len(good)} cases."
    if not missed:
        return reached
    header = ["larger than .8", "machine", "ratio", "allowed by R² and unjudged queries", "machine has a say"]
    rows = [
        [row.name, row.machine, *(share(each, 2) for each in (row.ratio, row.possible, row.powered))] for row in missed
    ]
    return f"""\
{reached}
It is larger in the others for two reasons. Where misses are rare, 50 labels often hold fewer than five of them, and then they decide
alone. And few unjudged queries limit what a machine can add.

{table(header, rows)}"""


def _drawing(rows: list[_Row]) -> str:
    r_squared = np.linspace(0, 0.8, 41)
    dots = [Dot(row.r_squared, row.ratio, "", f"{row.name}, {row.machine}") for row in rows if row.labels == 50]
    return draw(
        ROOT / "docs" / "benchmarks" / "few-labels" / "ratio.svg",
        "50 labels: how much the machine narrows the interval of accuracy",
        ("R² of the machine's scores", "ratio of widths"),
        {"√(1 − R²), with endless unjudged queries": (r_squared.tolist(), np.sqrt(1 - r_squared).tolist())},
        {"one set and one machine": dots},
    )
