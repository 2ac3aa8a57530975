"""Runs an adaptation from a data set to an encoder; `adapt` shows the steps in order."""

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from taugate.adaptation.decision import EncoderDecision, K
from taugate.adaptation.encoder_trainer import EncoderTrainer, graph_of
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.measures import Encode, EncoderComparison, OtherTexts, ParaphrasedQueries
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.adaptation.settings import TRAIN, AdaptationSettings
from taugate.adaptation.try_recipes import try_recipes, why_untrainable
from taugate.adaptation.unfinished import sole_worker
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.input_options import InputOptions
from taugate.calibration.encoding.source import document_encoder, exported_encoder, model_folder
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.progress import Job
from taugate.errors import EncoderError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.judgements import check_split, qrels_of, splits_in
from taugate.ingestion.dataset.location import default_split, local_folder
from taugate.ingestion.queries.accounting import read_accounting
from taugate.ingestion.queries.replies import LanguageModel
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord


@dataclass(frozen=True)
class Adaptation:
    """The result of an adaptation.

    Attributes:
        learned: The chosen map, None without a map.
        transformer: Folder of the trained model below the map, None if its weights are those of the base.
        record: Record of the adaptation, with the evidence.
        comparison: Comparison of all encoders tried.
    """

    learned: LinearMap | None
    transformer: Path | None
    record: AdaptationRecord
    comparison: EncoderComparison


def adapt(
    data: str,
    base: str,
    target: Path,
    settings: AdaptationSettings,
    job: Job,
    writer: LanguageModel | None = None,
) -> AdaptationRecord:
    """Adapt an encoder to a data set, test it, and write it with its record, accepted or not.

    After an error the target has not been written, and trained weights are kept beside it for the next attempt.

    Args:
        data: Folder of the data set, or its URL.
        base: Name or folder of a sentence-transformers model, or folder of an exported encoder.
        target: Folder to create for the adapted encoder.
        settings: Settings of the adaptation.
        job: Reports progress and warnings, and times the stages.
        writer: Writer of paraphrases, None for rules.

    Raises:
        InputError: If the data set, the settings or the target cannot be used.
        EncoderError: If the base cannot be adapted.
        OSError: If the writer does not respond.
    """
    from taugate.adaptation.folder import check_target, write_encoder  # imports PyTorch

    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("read"):
            evaluation, queries = _read(data, settings, Path(spool), job)
        with job.stage("export"):
            encoder = _load(base)
        # Measured first, so that the remaining budget for recipes is known.
        with job.stage("measure"):
            with job.task("writing paraphrases") as task:
                paraphrased = ParaphrasedQueries.write(queries.unseen, settings.seed, writer, task.advance)
            before = OtherTexts.encode(paraphrased, _encode_with(encoder, job))
        work, model = target.absolute().parent / f".{target.name}.work", model_folder(base)
        with sole_worker(work, job):
            untrainable = why_untrainable(model, base, settings.recipe)  # before encoding, which takes minutes
            pairs = _encode(evaluation, queries, encoder, job)
            trainer = EncoderTrainer(pairs, encoder, base, model, work, settings.seed, job)
            adaptation = _learn_and_judge(trainer, settings, untrainable)
            with job.stage("measure"):
                after = before
                if adaptation.transformer is not None:
                    trained = ExportedEncoder.load(graph_of(adaptation.transformer))
                    after = OtherTexts.encode(paraphrased, _encode_with(trained, job))
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
        comparison = EncoderComparison(pairs.queries.unseen, decision.trials, K, settings.seed)
        return Adaptation(learned.chosen.learned, learned.chosen.transformer, record, comparison)


def _load(base: str) -> ExportedEncoder:
    if document_encoder(base) is not None:
        raise EncoderError(
            f"encoder {base!r}: only its queries pass a learned map, not its documents; use the encoder from which it "
            "was adapted"
        )
    encoder = ExportedEncoder.load(exported_encoder(base, InputOptions(similarity="cosine")))
    if encoder.config.precision != "float32":
        raise EncoderError(
            f"encoder {base!r}: has {encoder.config.precision} weights, which encode only queries; use the float32 "
            "encoder from which it was quantised"
        )
    return encoder


def _read(data: str, settings: AdaptationSettings, spool: Path, job: Job) -> tuple[Dataset, AdaptationQueries]:
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
        evaluation = read_dataset(folder, deciding, spools[0])
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
        training = evaluation if split == deciding else read_dataset(folder, split, spools[1])
        origins = {query.origin for query in training.answerable}
        accounts = [account for origin, account in read_accounting(folder).items() if origin in origins]
        lost = sum((Counter(account.lost) for account in accounts), Counter[str]())
        return evaluation, AdaptationQueries.collect(evaluation, training, settings.seed, lost if accounts else None)


def _encode(
    dataset: Dataset,
    queries: AdaptationQueries,
    encoder: ExportedEncoder,
    job: Job,
) -> EncodedPairs:
    """Encode documents and queries with the base encoder, or read their embeddings from the cache."""
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    encoded = EncodedPairs.encode(dataset.documents, queries, encoder, cache, job)
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    return encoded


def _encode_with(encoder: ExportedEncoder, job: Job) -> Encode:
    """Return a function that encodes texts, or reads their embeddings from the cache."""
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    return lambda texts, role: encode(encoder, texts, len(texts), role, cache, job).vectors


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
