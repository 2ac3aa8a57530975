"""Adaptation with labelled queries."""

import statistics
from collections.abc import Sequence

from benchmarks.adapt.changed_sets import by_paper
from benchmarks.adapt.trials import AdaptPlan, Trial, gain_target, gains_table, trials
from benchmarks.line_chart import IMAGES, draw
from benchmarks.markdown import targets

HEADING = "With labels"


def section(plan: AdaptPlan) -> str:
    """Adapt to four sets, whose labelled queries are divided by document."""
    covid = trials(plan, "covidqa_chunks", change=by_paper)
    rows = [("covidqa_chunks, by paper", covid)]
    rows += [(name, trials(plan, name)) for name in ("squadshifts_reddit", "squadshifts_new_wiki", "cosqa")]
    wanted = [gain_target(name, found, least) for (name, found), least in zip(rows[:2], (4, 3), strict=True)]
    return f"{gains_table(rows)}\n\n{targets(wanted)}\n\n{_curves(rows)}"


def _curves(rows: Sequence[tuple[str, Sequence[Trial]]]) -> str:
    """Draw what more steps gain on the validation queries, beginning with the whitening, as the mean of the trials."""
    lines = {}
    for name, found in rows:
        each = [_curve(trial) for trial in found]
        steps = sorted(set.intersection(*(set(curve) for curve in each)))
        lines[name] = (
            [float(step) for step in steps],
            [statistics.mean(curve[step] for curve in each) for step in steps],
        )
    title = "Gain on validation queries by steps of the adapter, from whitening at 0"
    return draw(IMAGES / "adapt-curve.svg", title, ("steps of the adapter", "points of NDCG@10"), lines, {})


def _curve(trial: Trial) -> dict[int, float]:
    points = trial.record.curve
    base = next(point.ndcg for point in points if point.recipe == "base")
    whitened = max(point.ndcg for point in points if point.recipe == "whitening")
    adapted = {point.step: 100 * (point.ndcg - base) for point in points if point.recipe == "adapter"}
    return {0: 100 * (whitened - base)} | adapted
