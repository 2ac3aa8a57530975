"""Adaptation with labelled queries within ten minutes: what training through the encoder adds to the minute's linear maps."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.adapt.changed_sets import by_paper
from benchmarks.adapt.trials import AdaptPlan, Trial, chosen_on, points, trials
from benchmarks.markdown import Target, table, targets

HEADING = "With labels, in ten minutes"
_TRIALS = Path(__file__).with_name("labels_long_trials.md")  # by hand, and repeated below what is measured
_RECIPES = ("whitening", "adapter", "layers", "ft", "merge")


def section(plan: AdaptPlan) -> str:
    """Adapt to four sets by every recipe that the budget allows, and compare with the linear maps of the same trial."""
    budget = f"{plan.counted}steps" if plan.counted else f"{plan.minutes}m"
    rows = [("covidqa_chunks, by paper", trials(plan, "covidqa_chunks", change=by_paper, budget=budget))]
    rows += [
        (name, trials(plan, name, budget=budget)) for name in ("squadshifts_reddit", "squadshifts_new_wiki", "cosqa")
    ]
    above = max(statistics.mean(_above(trial) for trial in found) for _, found in rows)
    wanted = [
        Target("best set, points of NDCG@10 above the minute's result", above, at_least=2),
        Target("longest adaptation, minutes", max(trial.minutes for _, found in rows for trial in found), at_most=11),
    ]
    header = ["data set", "chosen on", *_RECIPES, "above the minute", "chosen", "steps", "admitted", "minutes"]
    return f"""\
Gains over the base, as above; a dash where the budget left a recipe out. *Above the minute* is the gain of the recipe that the validation
queries chose, less that of the best linear map of the same trial, also chosen by them. *Steps* are those that the budget paid for, in the
first trial.

{table(header, [_row(name, found) for name, found in rows])}

{targets(wanted)}

{_TRIALS.read_text(encoding="utf-8")}"""


def _row(name: str, found: Sequence[Trial]) -> list[object]:
    training = found[0].record.training
    stages = [] if training is None else training.stages
    return [
        name,
        chosen_on(name),
        *(points([trial.gain(recipe) for trial in found]) for recipe in _RECIPES),
        points([_above(trial) for trial in found]),
        ", ".join(trial.record.recipe for trial in found),
        ", ".join(f"{each.stage} {each.steps} of {each.batch}" for each in stages) or "–",
        f"{sum(trial.record.admitted for trial in found)} of {len(found)}",
        f"{statistics.mean(trial.minutes for trial in found):.1f}",
    ]


def _above(trial: Trial) -> float:
    """Return what the chosen recipe gains above the best linear map on the validation queries."""
    best = max(
        (point for point in trial.record.curve if point.recipe in {"whitening", "adapter"}),
        key=lambda point: point.ndcg,
    )
    return (trial.gain(trial.record.recipe) or 0.0) - (trial.gain(best.recipe) or 0.0)
