"""Trains a second stage from an encoder, and judges it on queries about unseen documents.

The steps are those of an adapted encoder (`job.py`): documents are divided, negatives are mined, the budget becomes
steps, and the gate decides. The second stage ranks the results of the encoder as it is, so nothing is encoded again.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taugate.adaptation.budget import EXPORT_SECONDS, TIMED, faster_format
from taugate.adaptation.decision import K, why_refused
from taugate.adaptation.encoder_trainer import check_weights
from taugate.adaptation.first_stage import FirstStage
from taugate.adaptation.folder import check_target, write_folder
from taugate.adaptation.parts import TRAIN, UNSEEN, VALIDATION
from taugate.adaptation.reading import encode_pairs, encode_with, load_base, read_queries, work_digest
from taugate.adaptation.settings import AdaptationSettings
from taugate.adaptation.trained_rerankers import TRAINED, TrainedReranker
from taugate.adaptation.training.cross_encoding import ScoredPairs
from taugate.adaptation.training.plan import StagePlan, TimeBudget, TrainingPlan
from taugate.adaptation.training.run import Schedule, TrainingRun
from taugate.adaptation.unfinished import sole_worker, writing_to
from taugate.calibration.encoding.source import model_folder
from taugate.calibration.gate.reranking import JudgedStage, JudgingQueries, StageResults
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CandidateSettings, GateSettings
from taugate.calibration.study.reranked import Candidates, score_pairs
from taugate.errors import InputError
from taugate.ingestion.dataset.labelled_query import LabelledQuery
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.adaptation import StageRecord
from taugate.retrieval.release.reranker_adaptation import RERANKER_ADAPTATION, RerankerAdaptation
from taugate.retrieval.rerank.reranker import Reranker
from taugate.retrieval.rerank.stage import combined, rank
from taugate.storage.files import write_synced

_CANDIDATES = int(CandidateSettings.fields()["rerank_candidates"].default)
# Queries of a kind to choose and to judge by: each is ranked for a second, and 500 show a gain of two points.
_CHOOSING, _JUDGING = 150, 500
# Weights of the first stage's score that are tried, as multiples of the fitted one: a model that has learned from few
# queries is too sure of itself on others, and 0 is the model alone.
_MULTIPLES = (1.0, 1.5, 2.0, 3.0, 0.0)


def adapt_reranker(data: str, base: str, target: Path, settings: AdaptationSettings, job: Job) -> RerankerAdaptation:
    """Train a second stage on a data set, judge it, and write it with its record, accepted or not.

    Args:
        data: Folder of the data set, or its URL.
        base: Name or folder of the encoder whose results it ranks.
        target: Folder to create for the model.
        settings: Settings of the adaptation.
        job: Reports progress and warnings, and times the stages.

    Raises:
        InputError: If the data set, the settings or the target cannot be used.
        EncoderError: If the encoder's transformer cannot be trained.
    """
    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("read"):
            evaluation, queries = read_queries(data, settings, Path(spool), job)
        with job.stage("export"):
            encoder, model = load_base(base), model_folder(base)
            check_weights(model, base, "")
        work = target.absolute().parent / f".{target.name}.work"
        with sole_worker(work, job):
            pairs = encode_pairs(evaluation, queries, encoder, job)
            encode = encode_with(encoder, job)
            first = FirstStage.choose(
                pairs, lambda part: encode([query.text for query in part], "query"), settings.lexical
            )
            trainer = _Trainer(first, encoder, model, base, work, settings, job)
            with job.stage("adapt"):
                trained, training, fitted = trainer.train()
            with job.stage("admit"):
                record = trainer.judge(trained, training, fitted)
            with job.stage("write"):

                def write(staging: Path) -> None:
                    trained.save(staging)
                    write_synced(staging / RERANKER_ADAPTATION, (record.model_dump_json(indent=2) + "\n").encode())

                write_folder(target, write)
    return record


@dataclass(frozen=True)
class _Trainer:
    """Trains a second stage within the budget, and judges it.

    Attributes:
        first: The first stage.
        encoder: The encoder, exported.
        folder: Folder of the encoder's weights.
        base: Name of the encoder.
        work: Folder of the unfinished work.
        settings: Settings of the adaptation.
        job: Shows the progress.
    """

    first: FirstStage
    encoder: ExportedEncoder
    folder: Path
    base: str
    work: Path
    settings: AdaptationSettings
    job: Job

    @property
    def kind(self) -> type[TrainedReranker[Any]]:
        """Class of the reranker to train."""
        assert self.settings.stage != "encoder"  # noqa: S101 (for the type checker: `job.py` adapts encoders)
        return TRAINED[self.settings.stage]

    def train(self) -> tuple[TrainedReranker[Any], StageRecord, float]:
        """Train a new model, or resume a killed run.

        Returns:
            The model, the record of its training, and the weight of the first stage's score to begin the choice with.
        """
        pairs = self.first.training_pairs(self.settings.seed)
        plan = self._plan(pairs)
        kind = self.kind
        stage, trained = plan.stages[kind.stage], kind.begin(self.folder, self.base, self.settings.seed)
        run = TrainingRun(self.work, self.settings.seed, self.job, plan.bfloat16)
        losses, fitted = trained.train(pairs, Schedule(stage.steps, stage.batch, kind.rate), run)
        record = StageRecord(
            stage=kind.stage,
            steps=stage.steps,
            batch=stage.batch,
            rate=kind.rate,
            bfloat16=plan.bfloat16,
            losses=losses,
        )
        return trained, record, fitted

    def _plan(self, pairs: ScoredPairs) -> TrainingPlan:
        """Fix the steps, or read those of a killed run."""
        settings, work = self.settings, work_digest(self.first.pairs, self.encoder, self.settings)
        plan = TrainingPlan.read(self.work, work)
        if plan is not None:
            self.job.report(f"resuming the unfinished work in {self.work}")
            return plan
        kind = self.kind
        stage, bfloat16 = StagePlan(steps=settings.steps or 0, batch=kind.batch), False
        if settings.seconds is not None:
            with self.job.task("timing"):
                seconds, bfloat16 = faster_format(lambda fast: self._step_seconds(pairs, bfloat16=fast))
            example = seconds / TIMED.batch
            judged = sum(len(self._queries(part)) for part in (VALIDATION, UNSEEN)) * _CANDIDATES
            after = example * kind.judging_cost(judged, len(self.first.pairs.corpus))
            budget = TimeBudget.of(settings.seconds - self.job.total, EXPORT_SECONDS + after)
            allocated = budget.allocate(kind.stage, example, 0.0, (kind.batch,), len(pairs.queries))
            if allocated is None:
                raise InputError(f"--budget {settings.budget}: {budget.left_out[kind.stage]}; raise it")
            stage = allocated
        plan = TrainingPlan(
            work=work, adapter_steps=0, bfloat16=bfloat16, stages={kind.stage: stage}, merge_weights=[], left_out={}
        )
        with writing_to(self.work):
            plan.write(self.work)
        return plan

    def _step_seconds(self, pairs: ScoredPairs, *, bfloat16: bool) -> float:
        kind, run = self.kind, TrainingRun(self.work, 0, self.job, bfloat16)
        few, trained = Schedule(TIMED.steps, TIMED.batch, kind.rate), kind.begin(self.folder, self.base, 0)
        return run.step_seconds(kind.stage, lambda scratch: trained.train(pairs, few, scratch))

    def judge(self, trained: TrainedReranker[Any], training: StageRecord, fitted: float) -> RerankerAdaptation:
        """Choose the weight of the first stage's score on the validation queries, and judge on the unseen ones."""
        parts = self.first.pairs.queries
        with tempfile.TemporaryDirectory(prefix="taugate-") as folder:
            reranker = trained.over(self.first.pairs.corpus, Path(folder), self.job)
            weight = self._choose_weight(reranker, fitted)
            queries = self._queries(UNSEEN)
            judging, scored = self._judging(queries), self._candidates(reranker, queries, weight)
        results = (_divided(top, len(judging.answerable)) for top in (scored.first, scored.second))
        judged = judging.judge(self.base, (next(results), next(results)))
        return RerankerAdaptation(
            base=self.encoder.config.name,
            base_sha256=self.encoder.config.revision,
            pairs=parts.record,
            unanswerable=len(parts.unanswerable[TRAIN]),
            seed=self.settings.seed,
            budget=self.settings.budget,
            lexical_weight=self.first.lexical_weight,
            candidates=_CANDIDATES,
            training=training,
            first_stage_weight=weight,
            admitted=judged.record.admitted,
            reason=None if judged.record.admitted else _reason(judged, judging),
            evidence=parts.evidence,
            gate=judged.record,
            separation=judged.separation,
        )

    def _choose_weight(self, reranker: Reranker, fitted: float) -> float:
        queries = [query for query in self._queries(VALIDATION) if query.relevant]
        judging, alone = self._judging(queries), self._candidates(reranker, queries, 0.0)

        def ndcg(top: TopK) -> float:
            return float(judging.outcomes(top).ndcg.mean())

        first = alone.first
        tried = {
            weight: ndcg(rank(combined(alone.scores, first.scores, weight), first))
            for weight in (multiple * fitted for multiple in _MULTIPLES)
        }
        best = max(tried, key=tried.__getitem__)
        self.job.report(
            f"second stage: NDCG@10 {tried[best]:.4f} on {len(queries):,} validation queries, first stage "
            f"{ndcg(first):.4f}"
        )
        return best

    def _queries(self, part: int) -> list[LabelledQuery]:
        """Return a sample of the validation or the unseen queries: answerable ones, then unanswerable ones."""
        parts, most = self.first.pairs.queries, _CHOOSING if part == VALIDATION else _JUDGING
        answerable = parts.validation if part == VALIDATION else parts.unseen
        order = np.random.default_rng([self.settings.seed, part]).permutation(len(answerable))[:most]
        return [*(answerable[row] for row in np.sort(order).tolist()), *parts.unanswerable[part][:most]]

    def _candidates(self, reranker: Reranker, queries: Sequence[LabelledQuery], weight: float) -> Candidates:
        top, texts = self.first.search(queries, _CANDIDATES), [query.text for query in queries]
        scores = score_pairs(reranker, texts, top.positions, self.job, "ranking")
        return Candidates(top, combined(scores, top.scores, weight))

    def _judging(self, queries: Sequence[LabelledQuery]) -> JudgingQueries:
        answerable, ids = [query for query in queries if query.relevant], clusters(queries)
        units, others = ids[: len(answerable)], ids[len(answerable) :]
        unanswerable = SamplingUnits.from_clusters(others) if len(others) else None
        parents, gate = self.first.pairs.parents, GateSettings()
        return JudgingQueries(answerable, parents, SamplingUnits.from_clusters(units), unanswerable, K, gate)


def _reason(judged: JudgedStage, judging: JudgingQueries) -> str:
    """State why the gate refuses a second stage, and what would help."""
    return judged.worse_separation or why_refused(judged.record, judging.units, "one stage")


def _divided(top: TopK, answerable: int) -> StageResults:
    parts = (TopK(top.scores[rows], top.positions[rows]) for rows in (slice(answerable), slice(answerable, None)))
    return StageResults(*parts)
