"""Adaptation without a label: crops of the documents, judged by queries of people."""

from benchmarks.adapt.changed_sets import by_paper
from benchmarks.adapt.trials import AdaptPlan, gain_target, gains_table, trials
from benchmarks.markdown import targets

HEADING = "Without labels, from crops"


def section(plan: AdaptPlan) -> str:
    """Adapt to two sets by crops alone; the queries of people only judge."""
    rows = [
        ("covidqa_chunks, by paper", trials(plan, "covidqa_chunks", crops=True, change=by_paper)),
        ("squadshifts_reddit", trials(plan, "squadshifts_reddit", crops=True)),
    ]
    wanted = [gain_target(name, found, least) for (name, found), least in zip(rows, (4, 2), strict=True)]
    return f"{gains_table(rows)}\n\n{targets(wanted)}"
