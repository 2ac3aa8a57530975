"""Runs an adaptation from a data set to an encoder; `adapt` shows the steps in order."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from taugate.adaptation.budget import check_encoding
from taugate.adaptation.decision import EncoderDecision, K
from taugate.adaptation.encoder_trainer import EncoderTrainer, graph_of
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.measures import ComparedEncoders
from taugate.adaptation.reading import encode_pairs, load_base, read_splits
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.adaptation.settings import AdaptationSettings
from taugate.adaptation.try_recipes import try_recipes, why_untrainable
from taugate.adaptation.unfinished import sole_worker
from taugate.calibration.comparison.measures import OtherTexts, ParaphrasedQueries, encode_with
from taugate.calibration.encoding.source import model_folder
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.progress import Job
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
    comparison: ComparedEncoders


def adapt(
    data: str, base: str, target: Path, settings: AdaptationSettings, job: Job, writer: LanguageModel | None = None
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
