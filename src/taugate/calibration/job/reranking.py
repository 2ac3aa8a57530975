"""Adds a second stage to a calibration, which also calibrates the first stage alone, on the same queries."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.gate.gate import gate_line
from taugate.calibration.gate.reranking import JudgedStage, StageResults, judge_second_stage, separation_in_words
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.decide import decide
from taugate.calibration.study.reranked import RerankedSearch, score_pairs
from taugate.calibration.study.study import Study, study
from taugate.errors import InputError
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.layout import (
    ABSTENTION,
    FIRST_STAGE_FOLDER,
    KNOWN_PAIRS,
    LEXICAL,
    RELEVANCE,
    RERANKER_FOLDER,
)
from taugate.retrieval.release.second_stage import (
    FirstStageRecord,
    SecondStageRecord,
    TokenVectorsRecord,
    write_pairs,
)
from taugate.retrieval.rerank.endpoint import RerankerEndpoint
from taugate.retrieval.rerank.late_interaction import LateInteraction
from taugate.retrieval.rerank.reranker import KnownPair, Reranker
from taugate.storage.files import sha256_json

# Enough to tell another model, few enough to score whenever an endpoint comes back.
_KNOWN_PAIRS = 4
# Scores of an endpoint may come from a GPU in half precision, whose batches move the third digit.
_ENDPOINT_TOLERANCE = 5e-3


@dataclass(frozen=True)
class AcceptedSecondStage:
    """A second stage that is used, with the first stage calibrated alone.

    Attributes:
        searching: The search of both stages.
        record: Its record in the manifest.
        files: Files of the reranker; none of an endpoint.
        first: Study of the first stage.
        known: Pairs to check the reranker.
    """

    searching: RerankedSearch
    record: SecondStageRecord
    files: list[Path]
    first: Study
    known: list[KnownPair]

    def write(self, release: Path) -> None:
        """Write the reranker, the known pairs, and what the first stage needs to answer alone.

        Raises:
            OSError: If a file cannot be written.
        """
        target, alone = release / RERANKER_FOLDER, release / FIRST_STAGE_FOLDER
        target.mkdir()
        for file in self.files:
            shutil.copyfile(file, target / file.name)
        write_pairs(target / KNOWN_PAIRS, self.known)
        relevance = None if self.first.estimated is None else self.first.estimated.relevance
        rule = self.first.answer_rule
        if relevance is not None or rule is not None:
            alone.mkdir()
        if relevance is not None:
            relevance.save(alone / RELEVANCE)
        if rule is not None:
            rule.score.save(alone / ABSTENTION)
            words = rule.score.signals.words
            if words is not None and not (release / LEXICAL).exists():
                words.index.save(release / LEXICAL)


def try_second_stage(
    inputs: CalibrationInputs, first: CorpusSearch, requested: RequestedReranker, spool: Path
) -> tuple[JudgedStage, AcceptedSecondStage | None]:
    """Score the candidates of all queries, judge the second stage, and calibrate the first one if there will be two.

    A reranker that is named is used as it is, and only judged.

    Args:
        inputs: The data set and the settings.
        first: The search of the first stage.
        requested: The reranker.
        spool: Folder for files that a release may need.

    Raises:
        InputError: If the requested rule cannot be applied to the scores.
        RerankerUnavailable: If the reranker gives no scores.
    """
    settings, job = inputs.settings, inputs.job
    with job.stage("rerank"):
        reranker = requested.over(inputs.dataset.documents, spool, job)
        searching = RerankedSearch.score(first, requested, reranker, settings.candidates.rerank_candidates)
    if searching.scale == "logit" and settings.rule.policy == "relative":
        raise InputError(
            "--policy relative: a share of the best score means nothing for log-odds, which this reranker gives; give "
            "--policy gap, the difference from the best score"
        )
    judged = _judge(inputs, searching, requested)
    line = gate_line(judged.record)
    if judged.separation is not None:
        line += f"; {separation_in_words(judged.separation)}"
    used = judged.record.admitted or not requested.gated
    job.report(line if requested.gated else f"second stage as given; {line}")
    if used and not judged.record.admitted:
        job.report("warning: the second stage is not shown to help; --rerank auto:MODEL would leave it out")
    if not used:
        return judged, None
    studied = study(inputs, first)
    known = _known_pairs(searching)
    record = _record(searching, requested, judged, {**studied.records} | decide(studied, inputs), known)
    return judged, AcceptedSecondStage(searching, record, requested.files(spool), studied, known)


def _judge(inputs: CalibrationInputs, searching: RerankedSearch, requested: RequestedReranker) -> JudgedStage:
    answerable, unanswerable = searching.answerable, searching.unanswerable
    clusters = None
    if len(unanswerable.first):
        ids = searching.queries.cluster_ids[len(answerable.first) :]
        clusters = SamplingUnits.from_clusters(ids)
    name = f"second stage {requested.name}, {answerable.scores.shape[1]} candidates"
    first = StageResults(answerable.first, unanswerable.first)
    return judge_second_stage(inputs, name, first, StageResults(answerable.second, unanswerable.second), clusters)


def _known_pairs(searching: RerankedSearch) -> list[KnownPair]:
    """Score evenly spaced queries with their best candidate alone, as the service will."""
    dataset = searching.inputs.dataset
    rows = np.unique(np.linspace(0, len(dataset.answerable) - 1, num=_KNOWN_PAIRS).astype(int))
    best = searching.answerable.second.positions[rows, :1]
    texts = [dataset.answerable[row].text for row in rows.tolist()]
    searching.reranker.forget()
    scores = score_pairs(searching.reranker, texts, best, searching.inputs.job, "scoring known pairs")
    return [
        KnownPair(text, dataset.documents[position].id, score)
        for text, (position,), (score,) in zip(texts, best.tolist(), scores.tolist(), strict=True)
    ]


def _record(
    searching: RerankedSearch,
    requested: RequestedReranker,
    judged: JudgedStage,
    first: Mapping[str, Any],
    known: list[KnownPair],
) -> SecondStageRecord:
    model = requested.model
    digest = sha256_json([round(pair.score, 2) for pair in known])
    return SecondStageRecord(
        kind=requested.kind,
        name=requested.name,
        model=requested.endpoint_model,
        sha256=digest if isinstance(model, RerankerEndpoint) else model.sha256,
        scores=searching.scale,
        candidates=searching.inputs.settings.candidates.rerank_candidates,
        tolerance=_ENDPOINT_TOLERANCE if requested.kind == "endpoint" else TOLERANCE,
        separation=judged.separation,
        token_vectors=_token_vectors(searching.reranker),
        first=FirstStageRecord(**{name: first[name] for name in FirstStageRecord.model_fields}),
    )


def _token_vectors(reranker: Reranker) -> TokenVectorsRecord | None:
    if not isinstance(reranker, LateInteraction):
        return None
    vectors = reranker.vectors
    return TokenVectorsRecord(
        dtype="int8",
        dimension=reranker.encoder.config.dimension,
        count=vectors.rows,
        bytes_per_passage=vectors.nbytes / len(vectors),
    )
