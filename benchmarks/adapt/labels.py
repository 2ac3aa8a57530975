"""Adaptation with labelled queries."""

import statistics

from benchmarks.adapt.trials import AdaptPlan, by_paper, gains_table, trials
from benchmarks.markdown import Target, targets

HEADING = "With labels"


def section(plan: AdaptPlan) -> str:
    """Adapt to four sets, whose labelled queries are divided by document."""
    covid = trials(plan, "covidqa_chunks", change=by_paper)
    rows = [("covidqa_chunks, by paper", covid)]
    rows += [(name, trials(plan, name)) for name in ("squadshifts_reddit", "squadshifts_new_wiki", "cosqa")]
    wanted = [
        Target(
            f"{name}, points of NDCG@10", statistics.mean(each.gain(each.record.recipe) or 0 for each in found), least
        )
        for (name, found), least in zip(rows[:2], (4, 3), strict=True)
    ]
    return f"{gains_table(rows)}\n\n{targets(wanted)}"
