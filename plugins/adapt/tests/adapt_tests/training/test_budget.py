"""A budget in seconds pays for recipes cheapest first; what it does not pay for is left out, and the plan says why."""

import itertools
import time
from typing import Any, cast

import pytest

from taugate.calibration.progress import Job
from taugate.errors import EncoderError, InputError
from taugate_adapt import budget
from taugate_adapt.budget import check_encoding, plan_within
from taugate_adapt.encoder_trainer import EncoderTrainer
from taugate_adapt.recipes import LearnedRecipes
from taugate_adapt.settings import AdaptationSettings, StagePlan, TextSeconds, TrainingPlan


class Pairs:
    documents = range(2000)
    train = range(700)
    validation = unseen = range(200)

    class queries:  # noqa: N801 (stands in for an attribute)
        class parts:  # noqa: N801
            @staticmethod
            def passages(_: int) -> range:
                return range(1000)


class Shop:
    """A machine on which a step of eight triplets takes one second through all layers, and a tenth through two."""

    pairs, seed, together = Pairs, 0, 1

    def __init__(self) -> None:
        self.job = Job()
        self.timed: list[tuple[str, bool]] = []

    def step_seconds(self, recipe: str, start: object, made: StagePlan, *, bfloat16: bool) -> float:
        self.timed.append((recipe, bfloat16))
        return {"layers": 0.1, "ft": 1.0, "pt-ft": 2.0}[recipe] * (0.7 if bfloat16 else 1) * made.batch / 8


class Linear:
    steps, chosen = 64, None


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(budget, "_text_seconds", lambda _: TextSeconds(document=0.01, query=0.01))
    monkeypatch.setattr(budget, "_lower_seconds", lambda _, bfloat16: 51.0)
    monkeypatch.setattr(budget, "export_seconds", lambda: 15.0)
    monkeypatch.setattr(budget, "may_be_faster", lambda: True)
    return Shop()


def plan(shop: Shop, given: str, recipe: str = "auto", untrainable: str | None = None) -> TrainingPlan:
    settings = AdaptationSettings(recipe=recipe, budget=given)
    return plan_within(
        settings, cast("EncoderTrainer", shop), cast("LearnedRecipes", Linear), 10.0, "work", untrainable
    )


def test_one_minute_plans_linear_recipes(shop: Shop) -> None:
    result = plan(shop, "1m")
    assert (result.stages, result.merge_weights, shop.timed) == ({}, [], [])
    assert set(result.left_out) == {"layers", "ft", "pt-ft"}
    assert result.left_out["ft"] == "29 seconds of the budget are left, and encoding the corpus again takes 56"


def test_ten_minutes_plan_layers_and_merging(shop: Shop) -> None:
    result = plan(shop, "10m")
    assert result.bfloat16
    assert result.stages["layers"].steps == 33, "three epochs of 700 pairs"
    assert result.merge_weights[0] == 0.5
    assert result.stages["ft"].steps >= 16
    assert "pt-ft" in result.left_out


def test_plan_fits_into_budget(shop: Shop) -> None:
    seconds = {"layers": 0.07 / 8, "ft": 0.7 / 8, "pt-ft": 1.4 / 8}
    for minutes in (3, 5, 10, 20, 60):
        result = plan(shop, f"{minutes}m")
        again = 15 + 10 + 31
        spent = sum(item.steps * item.batch * seconds[name] + again for name, item in result.stages.items())
        assert spent + again * len(result.merge_weights) <= 60 * minutes - 20, minutes


def test_query_time_is_counted_separately(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_text_seconds", lambda _: TextSeconds(document=0.05, query=0.002))
    result = plan(shop, "5m")  # 155 seconds of encoding the corpus again would leave nothing for steps
    assert result.stages["layers"].steps == 3 * 700 // 64 + 1


def test_step_budget_needs_no_timing(shop: Shop) -> None:
    result = plan(shop, "200steps")
    assert shop.timed == []
    assert {item.steps for item in result.stages.values()} == {200}
    assert list(result.stages) == ["layers", "ft", "pt-ft"]
    assert (result.bfloat16, result.merge_weights) == (False, [0.5, 0.75, 0.25])


def test_bfloat16_is_not_timed_without_instructions(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "may_be_faster", lambda: False)
    assert not plan(shop, "10m").bfloat16
    assert shop.timed
    assert not any(fast for _, fast in shop.timed), "a step of emulated bfloat16 takes minutes"


def test_plan_reserves_time_after_steps(shop: Shop) -> None:
    result = plan(shop, "10m")
    assert result.after == pytest.approx(15 + 10 + 31 + 2 * 10 + 4)
    assert result.stages["layers"].seconds == pytest.approx(0.07 / 8 * result.stages["layers"].batch)
    assert plan(shop, "200steps").after == 0


def test_budget_below_encoding_is_refused_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "encoding_seconds", lambda *_: 1500.0)
    corpus: Any = range(3000)
    with pytest.raises(InputError, match="encoding 3,000 documents takes 1500 s here; give 28m or more"):
        check_encoding(corpus, cast("Any", None), cast("Any", None), AdaptationSettings(budget="20m"), Job())
    for enough in ("30m", "9steps"):
        check_encoding(corpus, cast("Any", None), cast("Any", None), AdaptationSettings(budget=enough), Job())


def test_busy_processor_slows_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    used = itertools.count(0.0, 0.05)
    monkeypatch.setattr(time, "thread_time", lambda: next(used))
    clock = itertools.count(0.0, 0.6)  # three times as long as the processor was used
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert budget.export_seconds() == pytest.approx(45)


def test_untimeable_recipe_is_left_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Shop.step_seconds

    def without_mask_token(self: Shop, recipe: str, *rest: Any, bfloat16: bool) -> float:
        if recipe == "pt-ft":
            raise EncoderError("has no mask token")
        return timed(self, recipe, *rest, bfloat16=bfloat16)

    monkeypatch.setattr(Shop, "step_seconds", without_mask_token)
    result = plan(shop, "1h")
    assert list(result.stages) == ["layers", "ft"]
    assert result.left_out["pt-ft"] == "has no mask token"
    with pytest.raises(EncoderError, match="no mask token"):
        plan(shop, "1h", recipe="pt-ft")


def test_untrainable_base_plans_no_training(shop: Shop) -> None:
    result = plan(shop, "10m", untrainable="has no transformer")
    assert result.stages == {}
    assert list(result.left_out.values()) == ["has no transformer"]
