"""Try recipes in order of cost: linear maps, training through the encoder, merging; each starts from the best so far.

After a recipe that changes weights the corpus is encoded again, by the graph that would be served, and the linear maps
are fitted anew.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from taugate.adaptation.budget import plan_within
from taugate.adaptation.recipes import LearnedRecipes, TriedRecipe
from taugate.adaptation.settings import LINEAR, AdaptationSettings, Recipe
from taugate.adaptation.training.plan import NothingToLearn, TrainingPlan
from taugate.adaptation.unfinished import writing_to
from taugate.adaptation.workshop import Workshop, check_trainable
from taugate.errors import EncoderError, TaugateError
from taugate.retrieval.release.adaptation import CurvePoint, StageRecord, TrainingRecord
from taugate.storage.files import sha256_json


def climb(
    shop: Workshop, settings: AdaptationSettings, untrainable: str | None, say: Callable[[str], None]
) -> LearnedRecipes:
    """Try the recipes that are asked for, as far as the budget allows.

    Args:
        shop: Pairs, base encoder, and the folder of the unfinished work.
        settings: Of the adaptation.
        untrainable: Why the base has no weights to train, None where it has.
        say: Told a line of progress at a time.

    Raises:
        EncoderError: Where a loss is no number, InputError where the folder of the work is of another command or cannot
            be written, or there is nothing to learn from.
    """
    work = _digest(shop, settings)
    plan = TrainingPlan.read(shop.work, work)
    if plan is not None:
        say(f"going on with the unfinished work in {shop.work}")
    steps = plan.adapter_steps if plan is not None else settings.steps
    began = time.perf_counter()
    allowed = (lambda: float(settings.seconds or 0) - shop.watch.total) if steps is None else steps
    linear = LearnedRecipes.climb(
        shop.pairs, settings.recipe, shop.seed, allowed, say, keep_documents=settings.keep_documents
    )
    if settings.recipe in LINEAR:
        return linear
    if plan is None:
        plan = plan_within(settings, shop, linear, time.perf_counter() - began, work, untrainable)
        with writing_to(shop.work):
            plan.write(shop.work)
    return _follow(plan, shop, settings, linear, say)


def why_untrainable(model: Path, base: str, recipe: Recipe) -> str | None:
    """Say why weights cannot be trained; None where they can, or where a linear recipe is asked for.

    Args:
        model: Folder of the base.
        base: Its name, for messages.
        recipe: That is asked for. Only `auto` does without training. For the other recipes, raises what
            `check_trainable` does.
    """
    if recipe in LINEAR:
        return None
    try:
        check_trainable(model, base)
    except TaugateError as error:
        if recipe != "auto":
            raise
        return str(error)
    return None


def _follow(
    plan: TrainingPlan, shop: Workshop, settings: AdaptationSettings, linear: LearnedRecipes, say: Callable[[str], None]
) -> LearnedRecipes:
    """Run the planned stages, and return every recipe that was tried."""
    left_out = dict(plan.left_out)
    for recipe, why in left_out.items():
        say(f"warning: {recipe} left out: {why}")
    auto = settings.recipe == "auto"
    tried, curve, stages = [*linear.tried], [*linear.curve], list[StageRecord]()
    best, start, trained = linear.chosen, _start(shop, linear), None
    for recipe, made in plan.stages.items():
        before = None if recipe.startswith("pt") else start
        try:
            model, records = shop.train(recipe, start, made, bfloat16=plan.bfloat16)
            found = shop.with_best_map(recipe, model, recipe, before, plan.adapter_steps)
        except (EncoderError, NothingToLearn) as error:
            if not auto:
                raise
            left_out[recipe] = str(error)
            say(f"warning: {recipe} is left out: {error}")
            continue
        say(f"{recipe}: NDCG@10 {found.ndcg:.4f} after {made.steps} steps of {made.batch}")
        stages += records
        curve.append(CurvePoint(recipe=recipe, step=made.steps, loss=records[-1].losses[-1], ndcg=found.ndcg))
        tried.append(found)
        trained = found if trained is None or found.ndcg > trained.ndcg else trained
        if not auto or found.ndcg > best.ndcg:
            best = start = found
    if trained is not None:
        merged = _merged(plan, shop, trained, curve, say)
        if settings.recipe == "merge":  # 0 and 1 are weights as well
            ends = [replace(trained, merge_weight=1.0), replace(linear.chosen, merge_weight=0.0)]
            best = replace(max([*merged, *ends], key=lambda each: each.ndcg), name="merge")
            tried = [*linear.tried, best]
        elif merged:
            found = max(merged, key=lambda each: each.ndcg)
            tried.append(found)
            best = found if found.ndcg > best.ndcg else best
    weight = best.merge_weight if best.merge_weight is not None or best.transformer is None else 1.0
    record = TrainingRecord(stages=stages, merge_weights=plan.merge_weights, merge_weight=weight, left_out=left_out)
    return replace(linear, tried=tried, chosen=best, steps=plan.adapter_steps, curve=curve, training=record)


def _start(shop: Workshop, linear: LearnedRecipes) -> TriedRecipe:
    """Return where training begins: the best linear recipe, or the base itself where none is better."""
    best = linear.chosen
    if best.ndcg > linear.base:
        return best
    return replace(best, learned=None, whitening=None, per_query=shop.pairs.validate(None))


def _merged(
    plan: TrainingPlan, shop: Workshop, trained: TriedRecipe, curve: list[CurvePoint], say: Callable[[str], None]
) -> list[TriedRecipe]:
    """Merge the weights of a trained encoder with those of the base, once for each weight of the plan."""
    found = []
    for weight in plan.merge_weights:
        from taugate.adaptation.training.merging import merge  # imports PyTorch

        model = shop.load(trained)
        merge(shop.load(), model, weight)
        folder = f"merge-{weight:g}"
        each = shop.with_best_map("merge", model, folder, trained, plan.adapter_steps)
        found.append(replace(each, merge_weight=weight))
        curve.append(CurvePoint(recipe="merge", merge_weight=weight, ndcg=each.ndcg))
        say(f"merge: NDCG@10 {each.ndcg:.4f} with {weight:g} of the trained weights")
    return found


def _digest(shop: Workshop, settings: AdaptationSettings) -> str:
    """Return the digest of everything that determines the result: encoder, texts, settings and versions."""
    pairs = shop.pairs
    queries = [
        [each.id, each.text, [int(position) for position in each.relevant]]
        for part in (pairs.queries.train, pairs.queries.validation, pairs.queries.unseen)
        for each in part
    ]
    versions = [version(name) for name in ("taugate", "onnxruntime")]
    given = [str(getattr(settings, name)) for name in AdaptationSettings.fields()]
    texts = [pairs.corpus[row].encoded_text for row in range(len(pairs.documents))]
    return sha256_json([shop.encoder.sha256, queries, texts, given, versions])
