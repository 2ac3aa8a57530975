"""Tries recipes in order of cost, starting from the best so far: linear maps, training through the encoder, merging.

After a recipe that changes weights, the corpus is encoded again with the graph for serving, and the linear maps are
fitted again.
"""

import time
from dataclasses import replace
from pathlib import Path

from taugate.adaptation.budget import plan_within
from taugate.adaptation.encoder_trainer import EncoderTrainer, check_trainable
from taugate.adaptation.reading import work_digest
from taugate.adaptation.recipes import LearnedRecipes, TriedRecipe
from taugate.adaptation.settings import LINEAR, AdaptationSettings, Recipe
from taugate.adaptation.training.plan import MIN_STEPS, NothingToLearn, Pace, TrainingPlan
from taugate.adaptation.unfinished import writing_to
from taugate.errors import EncoderError, TaugateError
from taugate.retrieval.release.adaptation import RecipeTrial, StageRecord, TrainingRecord


def try_recipes(trainer: EncoderTrainer, settings: AdaptationSettings, untrainable: str | None) -> LearnedRecipes:
    """Try the requested recipes within the budget.

    Args:
        trainer: Trainer with the pairs, the base encoder, and the folder of the unfinished work.
        settings: Settings of the adaptation.
        untrainable: Why the base has no weights to train, None if it has.

    Raises:
        EncoderError: If a loss is not a finite number.
        InputError: If the folder of the work belongs to another command or cannot be written, or if there is nothing
            to learn from.
    """
    work = work_digest(trainer.pairs, trainer.encoder, settings)
    plan = TrainingPlan.read(trainer.work, work)
    if plan is not None:
        trainer.job.report(f"resuming the unfinished work in {trainer.work}")
    steps = plan.adapter_steps if plan is not None else settings.steps
    began = time.perf_counter()
    allowed = (lambda: float(settings.seconds or 0) - trainer.job.total) if steps is None else steps
    linear = LearnedRecipes.try_linear(
        trainer.pairs, settings.recipe, trainer.seed, allowed, trainer.job, keep_documents=settings.keep_documents
    )
    if settings.recipe in LINEAR:
        return linear
    if plan is None:
        plan = plan_within(settings, trainer, linear, time.perf_counter() - began, work, untrainable)
        with writing_to(trainer.work):
            plan.write(trainer.work)
    return _follow(plan, trainer, settings, linear)


def why_untrainable(model: Path, base: str, recipe: Recipe) -> str | None:
    """Return the reason why weights cannot be trained; None if they can, or if a linear recipe is requested.

    Only `auto` works without training. For other recipes the error of `check_trainable` is raised.

    Args:
        model: Folder of the base.
        base: Name of the base, for messages.
        recipe: Requested recipe.
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
    plan: TrainingPlan, trainer: EncoderTrainer, settings: AdaptationSettings, linear: LearnedRecipes
) -> LearnedRecipes:
    """Run the planned stages, and return every recipe that was tried."""
    left_out, pace = dict(plan.left_out), Pace(plan.after, settings.seconds, lambda: trainer.job.total)
    for recipe, reason in left_out.items():
        trainer.job.report(f"warning: {recipe} left out: {reason}")
    auto = settings.recipe == "auto"
    tried, curve, stages = [*linear.tried], [*linear.curve], list[StageRecord]()
    best, start, trained = linear.chosen, _start(trainer, linear), None
    for recipe, stage_plan in plan.stages.items():
        before = None if recipe.startswith("pt") else start
        try:
            if auto and not pace.covers(MIN_STEPS * stage_plan.seconds):
                raise NothingToLearn("too little of the budget is left, because steps were slower than measured")
            model, records = trainer.train(recipe, start, stage_plan, pace.of(stage_plan), bfloat16=plan.bfloat16)
            result = trainer.with_best_map(recipe, model, recipe, before, plan.adapter_steps)
        except (EncoderError, NothingToLearn) as error:
            if not auto:
                raise
            left_out[recipe] = str(error)
            trainer.job.report(f"warning: {recipe} is left out: {error}")
            continue
        steps = records[-1].steps
        trainer.job.report(f"{recipe}: NDCG@10 {result.ndcg:.4f} after {steps} steps of {stage_plan.batch}")
        stages += records
        curve.append(RecipeTrial(recipe=recipe, step=steps, loss=records[-1].losses[-1], ndcg=result.ndcg))
        tried.append(result)
        trained = result if trained is None or result.ndcg > trained.ndcg else trained
        if not auto or result.ndcg > best.ndcg:
            best = start = result
    merged = list[TriedRecipe]()
    if trained is not None:
        merged = _merged(plan, trainer, trained, curve, pace)
        if settings.recipe == "merge":  # 0 and 1 are weights as well
            ends = [replace(trained, merge_weight=1.0), replace(linear.chosen, merge_weight=0.0)]
            best = replace(max([*merged, *ends], key=lambda recipe: recipe.ndcg), name="merge")
            tried = [*linear.tried, best]
        elif merged:
            best_merged = max(merged, key=lambda recipe: recipe.ndcg)
            tried.append(best_merged)
            best = best_merged if best_merged.ndcg > best.ndcg else best
    weight = best.merge_weight if best.merge_weight is not None or best.transformer is None else 1.0
    weights = plan.merge_weights[: len(merged)]
    record = TrainingRecord(stages=stages, merge_weights=weights, merge_weight=weight, left_out=left_out)
    return replace(linear, tried=tried, chosen=best, steps=plan.adapter_steps, curve=curve, training=record)


def _start(trainer: EncoderTrainer, linear: LearnedRecipes) -> TriedRecipe:
    """Return the start of training: the best linear recipe, or the base itself if no recipe is better."""
    best = linear.chosen
    if best.ndcg > linear.base:
        return best
    return replace(best, learned=None, whitening=None, per_query=trainer.pairs.validate(None))


def _merged(
    plan: TrainingPlan, trainer: EncoderTrainer, trained: TriedRecipe, curve: list[RecipeTrial], pace: Pace
) -> list[TriedRecipe]:
    """Merge the weights of a trained encoder with those of the base, once for each weight that there is time for."""
    merged = list[TriedRecipe]()
    for weight in plan.merge_weights:
        if not pace.covers():
            trainer.job.report(f"warning: merge with {weight:g} left out: too little of the budget is left")
            break
        from taugate.adaptation.training.merging import merge  # imports PyTorch

        model = trainer.load(trained)
        merge(trainer.load(), model, weight)
        folder = f"merge-{weight:g}"
        recipe = trainer.with_best_map("merge", model, folder, trained, plan.adapter_steps)
        merged.append(replace(recipe, merge_weight=weight))
        curve.append(RecipeTrial(recipe="merge", merge_weight=weight, ndcg=recipe.ndcg))
        trainer.job.report(f"merge: NDCG@10 {recipe.ndcg:.4f} with {weight:g} of the trained weights")
    return merged
