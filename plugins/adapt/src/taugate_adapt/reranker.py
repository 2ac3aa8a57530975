"""Trains a second stage from an encoder, and judges it on queries about unseen documents.

The steps are those of an adapted encoder (`job.py`): documents are divided, negatives are mined, the budget becomes
steps, and the gate decides. The second stage ranks the results of the encoder as it is, so nothing is encoded again.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from taugate.calibration.acceptance.better_lists import JudgedStage, JudgingQueries, StageResults
from taugate.calibration.comparison.measures import encode_with
from taugate.calibration.encoding.source import model_folder
from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.progress import Job
from taugate.calibration.settings import CandidateSettings
from taugate.calibration.study.reranked import RerankedCandidates, score_pairs
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.rules import GateSettings
from taugate.release.adaptation import RERANKER_ADAPTATION, RerankerAdaptation, StageRecord
from taugate.release.encoder import MODEL
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.bert import Graph
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.hardware import processors
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.rerank.stage import Reranker, combined, rank
from taugate.storage.files import write_synced
from taugate_adapt import budget
from taugate_adapt.decision import K, why_refused
from taugate_adapt.encoder_trainer import check_weights
from taugate_adapt.folder import check_target, write_folder
from taugate_adapt.job import encode_pairs, load_base, read_splits, work_digest
from taugate_adapt.pairs import MIN_QUERIES, TRAIN, UNSEEN, VALIDATION, AdaptationQueries
from taugate_adapt.settings import (
    MIN_STEPS,
    SAFETY,
    AdaptationSettings,
    Pace,
    StagePlan,
    TimeBudget,
    TrainingPlan,
    sole_worker,
    writing_to,
)
from taugate_adapt.trained_rerankers import TRAINED, FirstStage, TrainedReranker, random_pairs
from taugate_adapt.training.cross_encoding import ScoredPairs
from taugate_adapt.training.run import Schedule, TrainingRun

_PAD_MULTIPLE = 16  # tokens, as of pairs
_CANDIDATES = int(CandidateSettings.fields()["rerank_candidates"].default)
# Queries of a kind to choose and to judge by: each is ranked for a second, and 500 show a gain of two points.
_MAX_QUERIES = {VALIDATION: 150, UNSEEN: 500}
# Weights of the first stage's score that are tried, as multiples of the fitted one: a model that has learned from few
# queries is too sure of itself on others, and 0 is the model alone.
_MULTIPLES = (1.0, 1.5, 2.0, 3.0, 0.0)


def adapt_reranker(data: str, base: str, target: Path, settings: AdaptationSettings, job: Job) -> RerankerAdaptation:
    """Train a second stage on a data set, judge it, and write it with its record, accepted or not."""
    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("read"):
            evaluation, queries = read_splits(data, settings, Path(spool), job)
        with job.stage("export"):
            model = model_folder(base)
            check_weights(model, base, "")
        work = target.absolute().parent / f".{target.name}.work"
        with sole_worker(work, job):
            costs = None
            if settings.seconds is not None and not TrainingPlan.exists(work):
                # Before the encoder is exported, which may take a minute: a budget that is too small should end soon.
                pairs = random_pairs(evaluation.documents, queries, settings.seed)
                costs = _Costs.of_training(pairs, model, base, work, settings, job)
            with job.stage("export"):
                encoder = load_base(base)
            if costs is not None:
                costs = costs.and_judging(evaluation.documents, queries, encoder)
            encoded = encode_pairs(evaluation, queries, encoder, job)
            encode = encode_with(encoder, job)
            first = FirstStage.choose(
                encoded, lambda part: encode([query.text for query in part], "query"), settings.lexical
            )
            trainer = _Trainer(first, encoder, model, base, work, settings, job, costs)
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


class _EncoderGraph(ExportedEncoder):
    """The encoder in onnxruntime, in which its rerankers are judged; the kernel of encoders is faster."""

    def _load_model(self, folder: Path, threads: int) -> Graph:
        return Graph(folder / MODEL, threads, self.config.max_length, _PAD_MULTIPLE, pair_lone_texts=False)


@dataclass(frozen=True)
class _Costs:
    """The seconds that training and judging take on this machine, measured on a sample before anything is encoded.

    Attributes:
        settings: Settings of the adaptation, with a budget in seconds.
        job: Knows the seconds that have passed.
        example: Seconds of a training example.
        after: Seconds needed after the last step.
    """

    settings: AdaptationSettings
    job: Job
    queries: int
    example: float
    bfloat16: bool
    after: float

    @classmethod
    def of_training(
        cls, pairs: ScoredPairs, folder: Path, base: str, work: Path, settings: AdaptationSettings, job: Job
    ) -> Self:
        """Time a few steps."""
        kind = _kind(settings)

        def step_seconds(bfloat16: bool) -> float:
            few, trained = Schedule(budget.TIMED.steps, budget.TIMED.batch, kind.rate), kind.begin(folder, base, 0)
            run = TrainingRun(work, 0, job, bfloat16)
            return run.step_seconds(kind.stage, lambda scratch: trained.train(pairs, few, scratch))

        with job.task("timing"):
            costs = cls(
                settings, job, len(pairs.queries), *budget.example_seconds(step_seconds), budget.export_seconds()
            )
        costs.check(None)
        return costs

    def and_judging(self, corpus: DocumentStore, queries: AdaptationQueries, encoder: ExportedEncoder) -> Self:
        """Add the time that judging takes."""
        with self.job.task("timing"):
            encoding = budget.encoding_seconds(corpus, queries, encoder, self.settings.seed)
            graph = _EncoderGraph(encoder.folder, encoder.config, encoder.sha256, processors())
            text = budget.text_seconds(graph, *budget.sample(corpus, queries.train, self.settings.seed))
        judged = sum(len(_sampled(queries, part, self.settings.seed)) for part in _MAX_QUERIES)
        judging = _kind(self.settings).judging_seconds(text, judged, _CANDIDATES, len(corpus))
        costs = replace(self, after=self.after + judging)
        costs.check(encoding)
        return costs

    def check(self, encoding: float | None) -> None:
        """Raise InputError if too few steps are possible after some seconds of encoding, None if not measured yet."""
        once = encoding or 0.0
        if self.allocate(once) is None:
            steps = MIN_STEPS * _kind(self.settings).batch * self.example
            because = f"{MIN_STEPS} steps take {steps:.0f} s here, and judging what they taught {self.after:.0f}"
            if encoding is None:
                because = f"{MIN_STEPS} steps alone take {steps:.0f} s here, and what they taught is judged after them"
            raise budget.too_small(self.settings, because, self.job.total + (once + steps + self.after) / SAFETY)

    def allocate(self, once: float = 0.0) -> StagePlan | None:
        """Return the steps that are possible after some seconds of encoding; None if they are too few."""
        kind = _kind(self.settings)
        available = TimeBudget.of((self.settings.seconds or 0) - self.job.total, self.after)
        return available.allocate(kind.stage, self.example, once, (kind.batch,), self.queries)


@dataclass(frozen=True)
class _Trainer:
    """Trains a second stage within the budget, and judges it.

    Attributes:
        costs: Measured costs; None for a number of steps, or if a killed run has measured them.
    """

    first: FirstStage
    encoder: ExportedEncoder
    folder: Path
    base: str
    work: Path
    settings: AdaptationSettings
    job: Job
    costs: _Costs | None

    def train(self) -> tuple[TrainedReranker[Any], StageRecord, float]:
        """Train a new model, or resume a killed run."""
        pairs = self.first.training_pairs(self.settings.seed)
        plan, kind = self._plan(), _kind(self.settings)
        stage, trained = plan.stages[kind.stage], kind.begin(self.folder, self.base, self.settings.seed)
        pace = Pace(plan.after, self.settings.seconds, lambda: self.job.total)
        run = TrainingRun(self.work, self.settings.seed, self.job, plan.bfloat16, on_step=pace.of(stage))
        losses, fitted = trained.train(pairs, Schedule(stage.steps, stage.batch, kind.rate), run)
        record = StageRecord(
            stage=kind.stage,
            steps=len(losses),
            batch=stage.batch,
            rate=kind.rate,
            bfloat16=plan.bfloat16,
            losses=losses,
        )
        return trained, record, fitted

    def _plan(self) -> TrainingPlan:
        """Fix the steps, or read those of a killed run."""
        settings, work = self.settings, work_digest(self.first.pairs, self.encoder, self.settings)
        plan = TrainingPlan.read(self.work, work)
        if plan is not None:
            self.job.report(f"resuming the unfinished work in {self.work}")
            return plan
        kind, costs = _kind(settings), self.costs
        if costs is None:
            plan = TrainingPlan(work=work, stages={kind.stage: StagePlan(steps=settings.steps or 0, batch=kind.batch)})
        else:
            # Encoding may have been slower than on the sample; then the pace decides how many steps are made.
            stage = costs.allocate() or StagePlan(steps=MIN_STEPS, batch=kind.batch, seconds=kind.batch * costs.example)
            plan = TrainingPlan(work=work, bfloat16=costs.bfloat16, stages={kind.stage: stage}, after=costs.after)
        with writing_to(self.work):
            plan.write(self.work)
        return plan

    def judge(self, trained: TrainedReranker[Any], training: StageRecord, fitted: float) -> RerankerAdaptation:
        """Choose the weight of the first stage's score on the validation queries, and judge on the unseen ones."""
        parts = self.first.pairs.queries
        with tempfile.TemporaryDirectory(prefix="taugate-") as folder:
            reranker = trained.over(self.first.pairs.corpus, Path(folder), self.job)
            choosing = [query for query in _sampled(parts, VALIDATION, self.settings.seed) if query.relevant]
            began = self.job.total
            weight = self._choose_weight(reranker, fitted, choosing)
            queries = _sampled(parts, UNSEEN, self.settings.seed, self._max_judged(began, len(choosing)))
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

    def _max_judged(self, began: float, ranked: int) -> int | None:
        """Return how many queries of a kind there is time to rank, if `ranked` ones were since a time of the job."""
        if self.settings.seconds is None:
            return None
        left, query = self.settings.seconds - self.job.total, (self.job.total - began) / ranked
        kinds = 2 if self.first.pairs.queries.unanswerable[UNSEEN] else 1
        return max(MIN_QUERIES[UNSEEN], int(left / query / kinds))

    def _choose_weight(self, reranker: Reranker, fitted: float, queries: Sequence[LabelledQuery]) -> float:
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

    def _candidates(self, reranker: Reranker, queries: Sequence[LabelledQuery], weight: float) -> RerankedCandidates:
        top, texts = self.first.search(queries, _CANDIDATES), [query.text for query in queries]
        scores = score_pairs(reranker, texts, top.positions, self.job, "ranking")
        return RerankedCandidates(top, combined(scores, top.scores, weight))

    def _judging(self, queries: Sequence[LabelledQuery]) -> JudgingQueries:
        answerable, ids = [query for query in queries if query.relevant], clusters(queries)
        units, others = ids[: len(answerable)], ids[len(answerable) :]
        unanswerable = SamplingUnits.from_clusters(others) if len(others) else None
        parents, gate = self.first.pairs.parents, GateSettings()
        return JudgingQueries(answerable, parents, SamplingUnits.from_clusters(units), unanswerable, K, gate)


def _kind(settings: AdaptationSettings) -> type[TrainedReranker[Any]]:
    assert settings.stage != "encoder"  # noqa: S101 (for the type checker: `job.py` adapts encoders)
    return TRAINED[settings.stage]


def _sampled(queries: AdaptationQueries, part: int, seed: int, max_queries: int | None = None) -> list[LabelledQuery]:
    """Return a sample of the validation or the unseen queries: answerable ones, then unanswerable ones."""
    max_queries = _MAX_QUERIES[part] if max_queries is None else min(max_queries, _MAX_QUERIES[part])
    answerable = queries.validation if part == VALIDATION else queries.unseen
    order = np.random.default_rng([seed, part]).permutation(len(answerable))[:max_queries]
    return [*(answerable[row] for row in np.sort(order).tolist()), *queries.unanswerable[part][:max_queries]]


def _reason(judged: JudgedStage, judging: JudgingQueries) -> str:
    """State why the gate refuses a second stage, and what would help."""
    return judged.worse_separation or why_refused(judged.record, judging.units, "one stage")


def _divided(top: TopK, answerable: int) -> StageResults:
    parts = (TopK(top.scores[rows], top.positions[rows]) for rows in (slice(answerable), slice(answerable, None)))
    return StageResults(*parts)
