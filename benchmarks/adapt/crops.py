"""Adaptation without a label: crops of the documents, judged by queries of people."""

import statistics

from benchmarks.adapt.trials import AdaptPlan, by_paper, gains_table, trials
from benchmarks.markdown import Target, targets

HEADING = "Without labels, from crops"


def section(plan: AdaptPlan) -> str:
    """Adapt to two sets by crops alone; the queries of people only judge."""
    rows = [
        ("covidqa_chunks, by paper", trials(plan, "covidqa_chunks", crops=True, change=by_paper)),
        ("squadshifts_reddit", trials(plan, "squadshifts_reddit", crops=True)),
    ]
    wanted = [
        Target(
            f"{name}, points of NDCG@10", statistics.mean(each.gain(each.record.recipe) or 0 for each in found), least
        )
        for (name, found), least in zip(rows, (4, 2), strict=True)
    ]
    return f"{gains_table(rows)}\n\n{targets(wanted)}"
