"""A budget turned into steps, by a short timing pass before the first of them."""

import time

import numpy as np

from taugate.adaptation.measures import TEXTS
from taugate.adaptation.parts import TRAIN
from taugate.adaptation.recipes import LearnedRecipes
from taugate.adaptation.settings import AdaptationSettings, Recipe
from taugate.adaptation.training.plan import (
    BATCHES,
    MIN_STEPS,
    NothingToLearn,
    Purse,
    StagePlan,
    TextSeconds,
    TrainingPlan,
)
from taugate.adaptation.workshop import Workshop
from taugate.errors import EncoderError
from taugate.retrieval.encoder.encoder import Role
from taugate.retrieval.release.adaptation import RecipeName

_STAGES: dict[Recipe, tuple[RecipeName, ...]] = {
    "auto": ("layers", "ft", "pt-ft"),
    "layers": ("layers",),
    "ft": ("ft",),
    "pt": ("pt",),
    "pt-ft": ("pt-ft",),
    "merge": ("layers",),
}
MERGE_WEIGHTS = (0.5, 0.75, 0.25)  # of the trained encoder, the most useful first; 0 and 1 are the two that are merged
_LAYERS_DOCUMENTS = 64  # of a batch, and as many negatives: with texts of 200 tokens, a gigabyte of activations
_EXPORT_SECONDS = 15.0  # allowed for loading, tracing and checking a model of 22 million weights
_TIMED = StagePlan(steps=2, batch=32)  # in fewer examples each takes less time than in a whole batch
_TIMED_TEXTS = 48
_TIMING_SECONDS = 30.0  # of the timing pass itself, with loading PyTorch's trainers
_FASTER = 0.9  # share of the time of float32 below which bfloat16 is taken
_STREAM = 7  # of the seed, for the sample that is timed


def plan_within(
    settings: AdaptationSettings,
    shop: Workshop,
    linear: LearnedRecipes,
    linear_seconds: float,
    work: str,
    untrainable: str | None,
) -> TrainingPlan:
    """Fix the steps of every recipe.

    Args:
        settings: With recipe and budget.
        shop: That trains.
        linear: The linear recipes, tried.
        linear_seconds: That they took.
        work: Digest of what decides on the result.
        untrainable: Why no weights can be trained, None where they can.

    Raises:
        EncoderError: Where the one recipe that was asked for cannot be trained.
        NothingToLearn: Where the one recipe that was asked for cannot be trained.
    """
    recipes, left_out = list(_STAGES[settings.recipe]), dict[str, str]()
    merges = settings.recipe in {"auto", "merge"}
    if untrainable is not None:
        left_out, recipes = {", ".join([*recipes, "merge"]): untrainable}, []
    steps = settings.steps
    if steps is not None:  # the same everywhere: nothing is timed
        stages: dict[RecipeName, StagePlan] = {}
        for recipe in recipes:
            stages[recipe] = StagePlan(steps=steps, batch=_batches(recipe, shop)[-1])
        weights = [*MERGE_WEIGHTS] if merges and stages else []
        return _plan(work, linear, stages, weights, left_out, bfloat16=False)
    with shop.watch.task("timing"):
        text = _text_seconds(shop)
        after = _EXPORT_SECONDS + linear_seconds + text.of(*_texts(shop))

        # The final searches, the measures and writing come after everything else.
        left = float(settings.seconds or 0) - shop.watch.total - 2 * linear_seconds - text.of(TEXTS, 0)
        stages, weights, example = {}, [], 0.0
        bfloat16: bool | None = None
        purse = Purse.of(left, after)
        for recipe in recipes:
            # A recipe is dearer than the one before it, and one that would be left out anyway need not be timed.
            if not purse.pays(_TIMING_SECONDS + MIN_STEPS * _batches(recipe, shop)[-1] * example):
                purse.leave_out(recipe)
                continue
            began = time.perf_counter()
            try:
                example, bfloat16 = _example_seconds(recipe, shop, linear, bfloat16=bfloat16)
            except (EncoderError, NothingToLearn) as error:
                if settings.recipe != "auto":
                    raise
                left_out[recipe] = str(error)
                continue
            once = _lower_seconds(shop, bfloat16=bfloat16) if recipe == "layers" else 0.0
            purse.seconds -= time.perf_counter() - began
            bought = purse.buy(recipe, example, once, _batches(recipe, shop), len(shop.pairs.train))
            if bought is None:
                continue
            stages[recipe] = bought
            if merges and not weights and purse.pays(0.0):  # merging is cheaper than the recipes that are still to come
                weights.append(MERGE_WEIGHTS[0])
                purse.seconds -= after
        for weight in MERGE_WEIGHTS[len(weights) :] if merges and stages else ():
            if purse.pays(0.0):
                weights.append(weight)
                purse.seconds -= after
    if merges and stages and not weights:
        left_out["merge"] = f"{max(0.0, purse.seconds):.0f} seconds of the budget are left, and it takes {after:.0f}"
    return _plan(work, linear, stages, weights, left_out | purse.left_out, bfloat16=bool(bfloat16))


def _example_seconds(
    recipe: RecipeName, shop: Workshop, linear: LearnedRecipes, *, bfloat16: bool | None
) -> tuple[float, bool]:
    """Time a few steps of a recipe; returns the seconds per example, and whether to train in bfloat16.

    Args:
        bfloat16: None to try both, and take the faster.
    """
    seconds = shop.step_seconds(recipe, linear.chosen, _TIMED, bfloat16=bool(bfloat16))
    if bfloat16 is None:
        fast = shop.step_seconds(recipe, linear.chosen, _TIMED, bfloat16=True)
        bfloat16 = fast < _FASTER * seconds
        seconds = min(fast, seconds)
    return seconds / _TIMED.batch, bfloat16


def _plan(
    work: str,
    linear: LearnedRecipes,
    stages: dict[RecipeName, StagePlan],
    weights: list[float],
    left_out: dict[str, str],
    *,
    bfloat16: bool,
) -> TrainingPlan:
    return TrainingPlan(
        work=work,
        adapter_steps=linear.steps,
        bfloat16=bfloat16,
        stages=stages,
        merge_weights=weights,
        left_out=left_out,
    )


def _batches(recipe: RecipeName, shop: Workshop) -> tuple[int, ...]:
    return (_LAYERS_DOCUMENTS * shop.together,) if recipe == "layers" else BATCHES


def _texts(shop: Workshop) -> tuple[int, int]:
    """Count the documents and the queries that every trained encoder encodes."""
    pairs = shop.pairs
    return len(pairs.documents), len(pairs.train) + len(pairs.validation) + len(pairs.unseen)


def _text_seconds(shop: Workshop) -> TextSeconds:
    """Time the exported base on a sample of texts, each kind twice, as other work may slow one of the two."""

    def timed(texts: list[str], role: Role) -> float:
        shop.encoder.encode(texts[:1], role)
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            shop.encoder.encode(texts, role)
            seconds.append(time.perf_counter() - began)
        return min(seconds) / len(texts)

    documents, queries = _sample(shop)
    return TextSeconds(timed(documents, "document"), timed(queries, "query"))


def _lower_seconds(shop: Workshop, *, bfloat16: bool) -> float:
    """Return the seconds that the frozen layers take for all training documents and queries."""
    documents, queries = (shop.lower_layers_seconds(texts, bfloat16=bfloat16) for texts in _sample(shop))
    return TextSeconds(documents, queries).of(len(shop.pairs.queries.parts.passages(TRAIN)), len(shop.pairs.train))


def _sample(shop: Workshop) -> tuple[list[str], list[str]]:
    """Draw documents and training queries to be timed."""
    rng, pairs = np.random.default_rng([shop.seed, _STREAM]), shop.pairs
    documents = rng.permutation(len(pairs.corpus))[:_TIMED_TEXTS].tolist()
    queries = rng.permutation(len(pairs.queries.train))[:_TIMED_TEXTS].tolist()
    return [pairs.corpus[row].encoded_text for row in documents], [pairs.queries.train[row].text for row in queries]
