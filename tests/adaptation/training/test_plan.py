"""A budget becomes steps before the first of them, and a plan is followed by the command that made it alone."""

from pathlib import Path

import pytest

from taugate.adaptation.settings import AdaptationSettings
from taugate.adaptation.training.plan import BATCHES, Purse, StagePlan, TrainingPlan
from taugate.errors import InputError


def test_a_purse_pays_for_steps_and_for_encoding_the_corpus_again() -> None:
    purse = Purse.of(seconds=500, after=100)  # 400 of them are planned for
    assert purse.buy("layers", 0.05, 40, (64,), most=10_000) == StagePlan(steps=81, batch=64)  # 260 seconds of 3.2
    assert 0 <= purse.seconds < 3.2
    assert not purse.pays(0)
    assert purse.buy("ft", 0.25, 0, BATCHES, most=10_000) is None
    assert purse.left_out == {"ft": "0 seconds of the budget are left for its steps, and 16 steps take 128"}


def test_more_epochs_than_are_worth_it_are_not_bought() -> None:
    purse = Purse.of(10_000, after=1)
    assert purse.buy("layers", 0.01, 0, (64,), most=640) == StagePlan(steps=30, batch=64)
    assert purse.pays(7000)


def test_a_smaller_batch_is_taken_where_the_budget_does_not_pay_for_that_of_the_paper() -> None:
    purse = Purse.of(1000, after=0)
    assert purse.buy("ft", 0.25, 0, BATCHES, most=10_000) == StagePlan(steps=25, batch=128)


def plan(work: str = "a") -> TrainingPlan:
    stages = {"layers": StagePlan(steps=2, batch=4)}
    return TrainingPlan(
        work=work, adapter_steps=4, bfloat16=False, stages=stages, merge_weights=[0.5], left_out={"ft": "why"}
    )


def test_a_plan_is_read_by_the_same_work_alone(tmp_path: Path) -> None:
    assert TrainingPlan.read(tmp_path / "work", "a") is None
    plan().write(tmp_path / "work")
    assert TrainingPlan.read(tmp_path / "work", "a") == plan()
    with pytest.raises(InputError, match="unfinished work of another command"):
        TrainingPlan.read(tmp_path / "work", "b")
    (tmp_path / "work" / "plan.json").write_bytes(b"{")
    with pytest.raises(InputError, match="or remove the folder to begin anew"):
        TrainingPlan.read(tmp_path / "work", "a")


def test_a_budget_is_a_time_or_a_number_of_steps() -> None:
    assert (AdaptationSettings(budget="90s").seconds, AdaptationSettings(budget="90s").steps) == (90, None)
    assert (AdaptationSettings(budget="200steps").seconds, AdaptationSettings(budget="200steps").steps) == (None, 200)
    assert AdaptationSettings(budget="1step").steps == 1
