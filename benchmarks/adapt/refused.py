"""Adaptations that must be refused."""

from benchmarks.adapt.changed_sets import labels_of_another, shuffled_labels
from benchmarks.adapt.trials import AdaptPlan, gains_table, trials
from benchmarks.markdown import Target, targets

HEADING = "What must be refused"


def section(plan: AdaptPlan) -> str:
    """Adapt where there is nothing to gain: nearly every query is answered, or the labels mean nothing."""
    rows = [
        ("pubmedqa_labelled", trials(plan, "pubmedqa_labelled")),
        ("squadshifts_reddit, labels shuffled", trials(plan, "squadshifts_reddit", change=shuffled_labels)),
        (
            "squadshifts_reddit, questions of squad_v2_dev",
            trials(plan, "squadshifts_reddit", change=labels_of_another),
        ),
    ]
    admitted = sum(each.record.admitted for _, found in rows for each in found)
    return f"{gains_table(rows)}\n\n{targets([Target('admitted', admitted, at_most=0)])}"
