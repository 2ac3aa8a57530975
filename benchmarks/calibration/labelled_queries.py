"""Measure what certification costs: results kept against the number of labelled queries."""

from functools import partial

import numpy as np

from benchmarks.calibration.trials import LOSSES, certified, labelled, trial
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.searched import SearchedSplit
from taugate.calibration.settings.rules import PolicyChoice
from taugate.retrieval.release.evidence import Statement

HEADING = "How many queries to label"
SETS = ("squad_v2_dev", "mixed_large", "covidqa_chunks", "pubmedqa_labelled", "cosqa", "scifact/train")
SIZES = (100, 200, 300, 500, 1000, 2000, 4000)
K = 5
DRAWS = 40
_MOST = 0.85  # of a set that may be drawn: the others judge
_ROWS: dict[str, tuple[PolicyChoice, Statement]] = {
    "95 %, auto": ("auto", "high-probability"),
    "95 %, similarity": ("similarity", "high-probability"),
    "expected, auto": ("auto", "expected-loss"),
}
_RULES = [certified(policy, guarantee, loss) for policy, guarantee in _ROWS.values() for loss in LOSSES]


def section(experiment: Experiment) -> str:
    """Calibrate on draws of each size, and judge on all other queries."""
    draws = experiment.part(DRAWS)
    rows = []
    for name in experiment.wanted(SETS):
        searched = experiment.searched(name, K)
        rows += _rows(experiment, name, searched, draws)
    return f"""\
Each column draws that many labelled queries {draws} times, with K = {K}. All of them calibrate, and `auto` fits its model on some of them. The
figure is the mean share of results kept on all other queries of the set. 1.000 means no cut. The share of draws in which nothing
could be certified stands in brackets.

Read along a row: once the figure stops falling, more labels buy nothing. To certify 1, 2 or 5 % with 95 % confidence takes at
least 299, 149 or 59 queries. If queries share documents, it takes more.

{table(["set", "δ", "statement", *(f"{size:,}" for size in SIZES)], rows)}
"""


def _rows(experiment: Experiment, name: str, searched: SearchedSplit, draws: int) -> list[list[str]]:
    cells: dict[tuple[int, int], str] = {}
    for size in SIZES:
        if size > _MOST * len(searched.queries):
            continue
        work = partial(trial, rules=_RULES, drawing=partial(labelled, size=size), seed=experiment.seed)
        done = experiment.workers.each(searched, work, draws)
        for column in range(len(_RULES)):
            kept = np.mean([outcomes[column].kept for outcomes, _ in done])
            none = 1 - np.mean([outcomes[column].cut for outcomes, _ in done])
            cells[column, size] = share(float(kept)) + (f" ({share(float(none), 2)})" if none else "")
    return [
        [name, share(loss, 2), statement, *(cells.get((row * len(LOSSES) + at, size), "") for size in SIZES)]
        for at, loss in enumerate(LOSSES)
        for row, statement in enumerate(_ROWS)
    ]
