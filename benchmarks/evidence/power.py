"""Measure how often each test recognises a candidate that is as good as the baseline."""

from collections.abc import Iterator

import numpy as np

from benchmarks.evidence.plot import lines
from benchmarks.evidence.verdicts import Test, check, of_documents, of_queries, passed
from benchmarks.evidence.worlds import Drawn, Structure, changed, structures
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.calibration.settings import CalibrationSettings
from taugate.evidence.divisions import HoldoutSplit
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.evidence.rules import CONFIDENCE, MARGIN

HEADING = "Power: a candidate that is as good"
TRIALS = 2000
_SETS = ("squad_v2_dev", "squadshifts_new_wiki", "squadshifts_reddit")
_CHANGED = 0.005  # of the answers are lost, and as many gained
_WANTED = {"identical": 0.9, "single queries change": 0.4}
_TESTS: dict[str, Test] = {"by document": of_documents, "by query": of_queries}
_MARGINS = (0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02)


def section(experiment: Experiment) -> str:
    """Simulate equal candidates, and count how often each test says so."""
    there = {each.name: each for each in structures(experiment)}
    asked = [there[name] for name in _SETS if name in there]
    rows, reached = [], []
    for structure in asked:
        for which, part in _parts(structure, experiment.seed):
            for what, drawn in _candidates(part, experiment.seed):
                powers = [float(passed(test(drawn, MARGIN)).mean()) for test in _TESTS.values()]
                mark = ""
                if what in _WANTED:
                    reached.append(powers[0] >= _WANTED[what])
                    mark = f"≥ {share(_WANTED[what], 1)}: {verdict(reached=reached[-1])}"
                least = share(min_detectable_loss(part.units, CONFIDENCE), 4)
                rows.append([part.name, which, f"{len(part.sizes):,}", least, what, *map(share, powers), mark])
    header = ["documents of", "queries", "documents", "least loss", "candidate", *_TESTS, "wanted, by document"]
    return f"""\
A cell has the share of {TRIALS:,} trials in which a candidate that is as good as the baseline passes, at the margin {share(MARGIN)}.

* *Identical*: nothing changes.
* *Single queries change*: {100 * _CHANGED:g} % of the queries are lost and as many gained, anywhere.
* *Whole documents change*: {100 * _CHANGED:g} % of the documents are lost with all of their queries, and as many gained.
* *All*: every labelled query judges. *Calibrating*: 70 % of them do, as with `--holdout 0.3`.
* *Least loss*: the smallest loss that the documents can exclude if nothing changes.

{_words(rows, all(reached))}

{table(header, rows)}

{_drawing(asked[0], experiment.seed) if asked else ""}
"""


def _parts(structure: Structure, seed: int) -> Iterator[tuple[str, Structure]]:
    """Return the structure with all of the queries, and with those that calibrate."""
    yield "all", structure
    units = structure.units
    split = HoldoutSplit.by_document(np.random.default_rng(seed), units.clusters, CalibrationSettings().holdout)
    yield "calibrating", Structure(structure.name, units.take(split.calibration).sizes())


def _candidates(structure: Structure, seed: int) -> Iterator[tuple[str, Drawn]]:
    rng = np.random.default_rng([seed, 1])
    yield "identical", Drawn(structure.sizes[None], np.zeros_like(structure.sizes)[None])
    single = changed(rng, structure.sizes, _CHANGED, TRIALS, whole=False)
    check(structure, Drawn(single.sizes[:50], single.sums[:50]), MARGIN, gains=True)
    yield "single queries change", single
    yield "whole documents change", changed(rng, structure.sizes, _CHANGED, TRIALS, whole=True)


def _words(rows: list[list[str]], reached: bool) -> str:
    short = [f"{row[4]} on {row[0]} ({row[1]})" for row in rows if "not reached" in row[-1]]
    wanted = (
        "What was wanted is reached in every row."
        if reached
        else f"Refused more often than wanted: {'; '.join(short)}."
    )
    identical = sum(float(row[6]) for row in rows if row[4] == "identical")
    whole = [float(row[5]) for row in rows if row[4] == "whole documents change"]
    return (
        f"{wanted}\n\nWhat is refused otherwise, though it is as good: a candidate that moves whole documents ({share(min(whole, default=0))} to {share(max(whole, default=0))}), as\n"
        "documents that are lost whole are what the test guards against; and most of what is to be said of the average *query*,\n"
        f"as the document with the most queries sets the scale: an identical candidate passes by query in {identical:.0f} of {len(whole)} rows."
    )


def _drawing(structure: Structure, seed: int) -> str:
    drawn = changed(np.random.default_rng([seed, 1]), structure.sizes, _CHANGED, 500, whole=False)
    points = [100 * margin for margin in _MARGINS]
    series = {
        name: (points, [float(passed(test(drawn, margin)).mean()) for margin in _MARGINS])
        for name, test in _TESTS.items()
    }
    title = f"Power on {structure.name}, {100 * _CHANGED:g} % of the queries lost and as many gained"
    return lines("power", title, ("margin, points", "passed"), series, 0.4)
