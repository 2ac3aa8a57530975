"""A budget becomes steps before the first of them, and a plan is followed by the command that made it alone."""

from pathlib import Path

import pytest

from taugate.errors import InputError
from taugate_adapt.settings import BATCHES, AdaptationSettings, Pace, StagePlan, TimeBudget, TrainingPlan


def test_budget_covers_steps_and_encoding() -> None:
    budget = TimeBudget.of(seconds=500, after=100)  # 400 of them are planned for
    assert budget.allocate("layers", 0.05, 40, (64,), max_examples=10_000) == StagePlan(
        steps=81, batch=64, seconds=3.2
    )  # 260 seconds of 3.2
    assert 0 <= budget.seconds < 3.2
    assert not budget.covers(0)
    assert budget.allocate("ft", 0.25, 0, BATCHES, max_examples=10_000) is None
    assert budget.left_out == {"ft": "0 seconds of the budget are left for its steps, and 16 steps take 128"}


def test_epochs_are_limited() -> None:
    budget = TimeBudget.of(10_000, after=1)
    assert budget.allocate("layers", 0.01, 0, (64,), max_examples=640) == StagePlan(steps=30, batch=64, seconds=0.64)
    assert budget.covers(7000)


def test_small_budget_takes_smaller_batch() -> None:
    budget = TimeBudget.of(1000, after=0)
    assert budget.allocate("ft", 0.25, 0, BATCHES, max_examples=10_000) == StagePlan(steps=25, batch=128, seconds=32)


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


def steps_made(pace: Pace, clock: list[float], duration: float) -> int:
    """Make steps of a duration on a clock until the pace ends them, and return their number."""
    ended = pace.of(StagePlan(steps=1000, batch=8, seconds=1.0))
    for step in range(1, 1000):
        clock[0] += duration
        if ended(duration):
            return step
    return 1000


@pytest.mark.parametrize("slower", [1, 2, 4])
def test_slow_steps_end_while_rest_fits_into_budget(slower: int) -> None:
    clock = [10.0]
    pace = Pace(after=50, seconds=600, elapsed=lambda: clock[0])
    steps = steps_made(pace, clock, slower)
    assert steps > 1
    assert 600 - slower <= clock[0] + slower * (50 + 1) <= 600 + slower, "what comes after is as much slower"
    assert not pace.covers(16)
    assert Pace(after=50, seconds=600, elapsed=lambda: 549.0).covers()


def test_given_steps_are_never_ended() -> None:
    clock = [0.0]
    assert steps_made(Pace(after=0.0, seconds=None, elapsed=lambda: clock[0]), clock, 1e6) == 1000


def test_warm_up_step_is_not_taken_for_slow() -> None:
    pace = Pace(after=50, seconds=600, elapsed=lambda: 30.0)
    ended = pace.of(StagePlan(steps=9, batch=8, seconds=1.0))
    assert [ended(5.0), ended(1.0), ended(1.0)] == [False] * 3
    assert pace.slower == 1


def test_budget_is_time_or_steps() -> None:
    assert (AdaptationSettings(budget="90s").seconds, AdaptationSettings(budget="90s").steps) == (90, None)
    assert (AdaptationSettings(budget="200steps").seconds, AdaptationSettings(budget="200steps").steps) == (None, 200)
    assert AdaptationSettings(budget="1step").steps == 1
