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
Mean share of results kept on all other queries of the set, over {draws} draws of so many labelled queries, K = {K}; all of
them calibrate, and `auto` fits its model on some of them. 1.000 is no cut: the share of draws in which nothing could be
certified, if any, is in brackets. Read along a row: where it stops falling, more labels buy nothing. At 95 % at least 299,
149 or 59 certifying queries are needed for 1, 2 or 5 % where no two queries share a document, and more where they do.

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
