"""A budget becomes steps before the first of them, and a plan is followed by the command that made it alone."""

from pathlib import Path

import pytest

from taugate.adaptation.settings import AdaptationSettings
from taugate.adaptation.training.plan import BATCHES, StagePlan, TimeBudget, TrainingPlan
from taugate.errors import InputError


def test_budget_covers_steps_and_encoding() -> None:
    budget = TimeBudget.of(seconds=500, after=100)  # 400 of them are planned for
    assert budget.allocate("layers", 0.05, 40, (64,), max_examples=10_000) == StagePlan(
        steps=81, batch=64
    )  # 260 seconds of 3.2
    assert 0 <= budget.seconds < 3.2
    assert not budget.covers(0)
    assert budget.allocate("ft", 0.25, 0, BATCHES, max_examples=10_000) is None
    assert budget.left_out == {"ft": "0 seconds of the budget are left for its steps, and 16 steps take 128"}


def test_epochs_are_limited() -> None:
    budget = TimeBudget.of(10_000, after=1)
    assert budget.allocate("layers", 0.01, 0, (64,), max_examples=640) == StagePlan(steps=30, batch=64)
    assert budget.covers(7000)


def test_small_budget_takes_smaller_batch() -> None:
    budget = TimeBudget.of(1000, after=0)
    assert budget.allocate("ft", 0.25, 0, BATCHES, max_examples=10_000) == StagePlan(steps=25, batch=128)


def plan(work: str = "a") -> TrainingPlan:
    stages = {"layers": StagePlan(steps=2, batch=4)}
    return TrainingPlan(
        work=work, adapter_steps=4, bfloat16=False, stages=stages, merge_weights=[0.5], left_out={"ft": "why"}
    )


def test_plan_of_other_work_is_refused(tmp_path: Path) -> None:
    assert TrainingPlan.read(tmp_path / "work", "a") is None
    plan().write(tmp_path / "work")
    assert TrainingPlan.read(tmp_path / "work", "a") == plan()
    with pytest.raises(InputError, match="unfinished work of another command"):
        TrainingPlan.read(tmp_path / "work", "b")
    (tmp_path / "work" / "plan.json").write_bytes(b"{")
    with pytest.raises(InputError, match="or remove the folder to start again"):
        TrainingPlan.read(tmp_path / "work", "a")


def test_budget_is_time_or_steps() -> None:
    assert (AdaptationSettings(budget="90s").seconds, AdaptationSettings(budget="90s").steps) == (90, None)
    assert (AdaptationSettings(budget="200steps").seconds, AdaptationSettings(budget="200steps").steps) == (None, 200)
    assert AdaptationSettings(budget="1step").steps == 1
