"""A second stage is trained only if the budget covers its steps and its judging, at the speed measured here."""

from typing import Any, cast

import pytest

pytest.importorskip("accelerate")

from taugate.calibration.progress import Job
from taugate.errors import InputError
from taugate.release.adaptation import RerankerStage
from taugate_adapt import budget, reranker
from taugate_adapt.pairs import UNSEEN, VALIDATION
from taugate_adapt.reranker import _Costs
from taugate_adapt.settings import MIN_STEPS, AdaptationSettings, TextSeconds

STAGES: tuple[RerankerStage, ...] = ("rerank", "late-interaction")


class Clock(Job):
    """A job that began some seconds ago."""

    seconds_ago = 20.0

    @property
    def total(self) -> float:
        return self.seconds_ago


class Encoder:
    folder = config = sha256 = None


class Queries:
    """A sample data set: 75 queries to choose by, 175 to judge by."""

    train = validation = range(75)
    unseen = range(175)
    unanswerable: dict[int, list[Any]] = {VALIDATION: [], UNSEEN: []}  # noqa: RUF012 (stands in for an attribute)


def costs(stage: RerankerStage, given: str, example: float) -> _Costs:
    return _Costs(AdaptationSettings(stage=stage, budget=given), Clock(), 250, example, False, 15.0)


def with_judging(before: _Costs, monkeypatch: pytest.MonkeyPatch, encoding: float = 10.0) -> _Costs:
    monkeypatch.setattr(budget, "encoding_seconds", lambda *_: encoding)
    monkeypatch.setattr(reranker, "_EncoderGraph", lambda *_: None)
    monkeypatch.setattr(budget, "sample", lambda *_: ())
    monkeypatch.setattr(budget, "text_seconds", lambda *_: TextSeconds(document=0.02, query=0.004))
    monkeypatch.setattr(reranker, "_sampled", lambda queries, part, _: [*queries.unseen][: 75 if part == 1 else 175])
    return before.and_judging(cast("Any", range(500)), cast("Any", Queries), cast("Any", Encoder))


@pytest.mark.parametrize("stage", STAGES)
def test_budget_below_training_is_refused_at_once(stage: RerankerStage) -> None:
    with pytest.raises(InputError, match=r"--budget 2m: 16 steps alone take \d+ s here, .*; give \d+m or more"):
        costs(stage, "2m", example=1.0).check(None)
    costs(stage, "2m", example=0.05).check(None)


def test_judging_is_reserved_by_measured_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    after = {stage: with_judging(costs(stage, "1h", 1.0), monkeypatch).after for stage in STAGES}
    assert after["rerank"] == pytest.approx(15 + 250 * 20 * 0.024), "every pair is read"
    assert after["late-interaction"] == pytest.approx(15 + 500 * 0.02 + 250 * 0.004), "every text is encoded once"


def test_budget_below_judging_is_refused_before_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    before = costs("rerank", "2m", example=0.1)
    before.check(None)
    with pytest.raises(InputError, match="16 steps take 26 s here, and judging what they taught 135; give ") as error:
        with_judging(before, monkeypatch)
    minutes = str(error.value).partition("give ")[2].split()[0]
    with_judging(costs("rerank", minutes, example=0.1), monkeypatch)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("minutes", [10, 20, 60])
def test_planned_steps_and_judging_fit(stage: RerankerStage, minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = with_judging(costs(stage, f"{minutes}m", example=0.4), monkeypatch)
    steps = planned.allocate(10.0)
    assert steps is not None
    assert steps.steps >= MIN_STEPS
    assert 20 + 10 + steps.steps * steps.seconds + planned.after <= 60 * minutes
