"""Runs an adaptation from a data set to an encoder; `adapt` shows the steps, which try recipes in order of cost.

Tries recipes in order of cost, starting from the best so far: linear maps, training through the encoder, merging. After
a recipe that changes weights, the corpus is encoded again with the graph for serving, and the linear maps are fitted
again.
"""

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from taugate.calibration.comparison.measures import OtherTexts, ParaphrasedQueries, encode_with
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import document_encoder, exported_encoder, model_folder
from taugate.calibration.metrics.embeddings import isotropy
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import read_accounting
from taugate.data.generation.language_model import LanguageModel
from taugate.data.judgements import check_split, qrels_of, splits_in
from taugate.data.location import default_split, local_folder
from taugate.errors import EncoderError, TaugateError
from taugate.release.adaptation import AdaptationRecord, RecipeTrial, StageRecord, TrainingRecord
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.hardware import onnxruntime_version
from taugate.storage.files import sha256_json
from taugate_adapt.budget import check_encoding, plan_within
from taugate_adapt.decision import ComparedEncoders, EncoderDecision, K
from taugate_adapt.encoder_trainer import EncoderTrainer, check_trainable, graph_of
from taugate_adapt.linear import LinearMap
from taugate_adapt.pairs import AdaptationQueries
from taugate_adapt.recipes import EncodedPairs, LearnedRecipes, TriedRecipe
from taugate_adapt.settings import (
    LINEAR,
    MIN_STEPS,
    TRAIN,
    AdaptationSettings,
    NothingToLearn,
    Pace,
    Recipe,
    TrainingPlan,
    sole_worker,
    writing_to,
)


def load_base(base: str) -> ExportedEncoder:
    """Load the encoder to adapt, exported."""
    if document_encoder(base) is not None:
        raise EncoderError(
            f"encoder {base!r}: only its queries pass a learned map, not its documents; use the encoder from which it "
            "was adapted"
        )
    encoder = load_encoder(exported_encoder(base, InputOptions(similarity="cosine")))
    if encoder.config.precision != "float32":
        raise EncoderError(
            f"encoder {base!r}: has {encoder.config.precision} weights, which encode only queries; use the float32 "
            "encoder from which it was quantised"
        )
    return encoder


def read_splits(data: str, settings: AdaptationSettings, spool: Path, job: Job) -> tuple[Dataset, AdaptationQueries]:
    """Read the evaluation split and the training split, if there is one, and divide their queries."""
    deciding = settings.eval_split
    if deciding is None:
        deciding = default_split(data, job.report, "admission is decided by", "--eval-split")
    named = [] if settings.split is None or settings.split == deciding else [settings.split]
    with local_folder(data, deciding, *named, optional=(TRAIN,) if settings.split is None else ()) as folder:
        split = TRAIN if settings.split is None and TRAIN in splits_in(folder) else settings.split
        spools = [spool / name for name in ("evaluation", "training")]
        for path in spools:
            path.mkdir()
        check_split(folder / qrels_of(deciding), "--eval-split")
        lowest = settings.relevant_from
        evaluation = read_dataset(folder, deciding, spools[0], relevant_from=lowest)
        for note in evaluation.notes:
            job.report(note)
        if len({query.weight for query in evaluation.answerable}) > 1:
            job.report(
                f"warning: the queries of split {evaluation.split} have weights, which acceptance does not use: the "
                "gain is that of the judged queries, not of all queries"
            )
        if split is None:
            job.report("no split train: learning from crops of the documents")
            return evaluation, AdaptationQueries.collect(evaluation, None, settings.seed)
        training = evaluation if split == deciding else read_dataset(folder, split, spools[1], relevant_from=lowest)
        origins = {query.origin for query in training.answerable}
        accounts = [account for origin, account in read_accounting(folder).items() if origin in origins]
        lost = sum((Counter(account.lost) for account in accounts), Counter[str]())
        return evaluation, AdaptationQueries.collect(evaluation, training, settings.seed, lost if accounts else None)


def encode_pairs(dataset: Dataset, queries: AdaptationQueries, encoder: ExportedEncoder, job: Job) -> EncodedPairs:
    """Encode documents and queries with the base encoder, or read their embeddings from the cache."""
    cache = EmbeddingCache.of(encoder)
    encoded = EncodedPairs.encode(dataset.documents, queries, encoder, cache, job)
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    return encoded


def work_digest(pairs: EncodedPairs, encoder: ExportedEncoder, settings: AdaptationSettings) -> str:
    """Return the digest of everything that determines the result: encoder, texts, settings and versions."""
    parts = pairs.queries
    queries = [
        [query.id, query.text, [int(position) for position in query.relevant]]
        for part in (parts.train, parts.validation, parts.unseen, *parts.unanswerable.values())
        for query in part
    ]
    versions = [version("taugate"), onnxruntime_version()]
    values = [str(getattr(settings, name)) for name in AdaptationSettings.fields()]
    texts = [pairs.corpus[row].encoded_text for row in range(len(pairs.documents))]
    return sha256_json([encoder.sha256, queries, texts, values, versions])


def try_recipes(trainer: EncoderTrainer, settings: AdaptationSettings, untrainable: str | None) -> LearnedRecipes:
    """Try the requested recipes within the budget.

    Args:
        trainer: Trainer with the pairs, the base encoder, and the folder of the unfinished work.
        untrainable: Why the base has no weights to train, None if it has.
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
        from taugate_adapt.training.fine_tuning import merge  # imports PyTorch

        model = trainer.load(trained)
        merge(trainer.load(), model, weight)
        folder = f"merge-{weight:g}"
        recipe = trainer.with_best_map("merge", model, folder, trained, plan.adapter_steps)
        merged.append(replace(recipe, merge_weight=weight))
        curve.append(RecipeTrial(recipe="merge", merge_weight=weight, ndcg=recipe.ndcg))
        trainer.job.report(f"merge: NDCG@10 {recipe.ndcg:.4f} with {weight:g} of the trained weights")
    return merged


@dataclass(frozen=True)
class Adaptation:
    """The result of an adaptation.

    Attributes:
        learned: The chosen map, None without a map.
        transformer: Folder of the trained model below the map, None if its weights are those of the base.
    """

    learned: LinearMap | None
    transformer: Path | None
    record: AdaptationRecord
    comparison: ComparedEncoders


def adapt(
    data: str, base: str, target: Path, settings: AdaptationSettings, job: Job, writer: LanguageModel | None = None
) -> AdaptationRecord:
    """Adapt an encoder to a data set, test it, and write it with its record, accepted or not.

    After an error the target has not been written, and trained weights are kept beside it for the next attempt.

    Args:
        base: Name or folder of a sentence-transformers model, or folder of an exported encoder.
        writer: Writer of paraphrases, None for rules.
    """
    from taugate_adapt.folder import check_target, write_encoder  # imports PyTorch

    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("read"):
            evaluation, queries = read_splits(data, settings, Path(spool), job)
        with job.stage("export"):
            encoder = load_base(base)
        check_encoding(evaluation.documents, queries, encoder, settings, job)
        # Measured first, so that the remaining budget for recipes is known.
        with job.stage("measure"):
            with job.task("writing paraphrases") as task:
                paraphrased = ParaphrasedQueries.write(queries.unseen, settings.seed, writer, task.advance)
            before = OtherTexts.encode(paraphrased, encode_with(encoder, job))
        work, model = target.absolute().parent / f".{target.name}.work", model_folder(base)
        with sole_worker(work, job):
            untrainable = why_untrainable(model, base, settings.recipe)  # before encoding, which takes minutes
            pairs = encode_pairs(evaluation, queries, encoder, job)
            trainer = EncoderTrainer(pairs, encoder, base, model, work, settings.seed, job)
            adaptation = _learn_and_judge(trainer, settings, untrainable)
            with job.stage("measure"):
                after = before
                if adaptation.transformer is not None:
                    trained = ExportedEncoder.load(graph_of(adaptation.transformer))
                    after = OtherTexts.encode(paraphrased, encode_with(trained, job))
                if adaptation.learned is not None:
                    after = after.through(adaptation.learned.apply, adaptation.learned.apply_to_documents)
                measures = adaptation.comparison.measure(adaptation.record.recipe, paraphrased, before, after)
                record = adaptation.record.model_copy(update={"measures": measures})
            with job.stage("write"):
                write_encoder(adaptation.transformer or model, base, adaptation.learned, record, target, encoder)
    return record


def _learn_and_judge(trainer: EncoderTrainer, settings: AdaptationSettings, untrainable: str | None) -> Adaptation:
    """Try the recipes and test them; no encoder is written."""
    job, pairs = trainer.job, trainer.pairs
    with job.stage("adapt"):
        learned = try_recipes(trainer, settings, untrainable)
    with job.stage("admit"):
        decision = EncoderDecision.decide(pairs, learned, settings.lexical)
        record = _record(pairs, learned, decision, trainer.encoder, settings)
        comparison = ComparedEncoders(pairs.queries.unseen, decision.trials, K, settings.seed)
        return Adaptation(learned.chosen.learned, learned.chosen.transformer, record, comparison)


def _record(
    pairs: EncodedPairs,
    learned: LearnedRecipes,
    decision: EncoderDecision,
    encoder: ExportedEncoder,
    settings: AdaptationSettings,
) -> AdaptationRecord:
    return AdaptationRecord(
        recipe=learned.chosen.name,
        asked=settings.recipe,
        base=encoder.config.name,
        base_sha256=encoder.config.revision,
        pairs=pairs.queries.record,
        seeds={"documents": settings.seed, "pairs": settings.seed},
        budget=settings.budget,
        steps=learned.steps,
        whitening=learned.chosen.whitening,
        keeps_documents=settings.keep_documents,
        curve=learned.curve,
        admitted=decision.accepted,
        reason=decision.reason,
        evidence=pairs.queries.evidence,
        gain=decision.gain,
        recall=decision.recall,
        lexical_weight=decision.lexical_weight,
        isotropy_before=isotropy(pairs.documents),
        isotropy_after=isotropy(learned.chosen.documents),
        gate=decision.gate,
        training=learned.training,
    )
