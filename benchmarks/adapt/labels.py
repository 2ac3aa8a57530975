"""Adaptation with labelled queries."""

from benchmarks.adapt.trials import AdaptPlan, by_paper, gain_target, gains_table, trials
from benchmarks.markdown import targets

HEADING = "With labels"


def section(plan: AdaptPlan) -> str:
    """Adapt to four sets, whose labelled queries are divided by document."""
    covid = trials(plan, "covidqa_chunks", change=by_paper)
    rows = [("covidqa_chunks, by paper", covid)]
    rows += [(name, trials(plan, name)) for name in ("squadshifts_reddit", "squadshifts_new_wiki", "cosqa")]
    wanted = [gain_target(name, found, least) for (name, found), least in zip(rows[:2], (4, 3), strict=True)]
    return f"{gains_table(rows)}\n\n{targets(wanted)}"
