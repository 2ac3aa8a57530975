"""Adds a second stage to a calibration, which also calibrates the first stage alone, on the same queries."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from taugate.calibration.acceptance.gate import gate_line
from taugate.calibration.acceptance.reranking import JudgedStage, separation_in_words
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.job.candidates import fewest_candidates, most_candidates
from taugate.calibration.job.reranker_precision import try_precision
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.decide import decide
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.reranked import RerankedSearch, score_pairs
from taugate.calibration.study.study import Study, study
from taugate.retrieval.policy.scales import SCALES
from taugate.retrieval.release.decisions import ModelsFolder, RerankerFolder
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.layout import FIRST_STAGE_FOLDER, RERANKER_FOLDER
from taugate.retrieval.release.reranker_adaptation import RerankerAdaptation
from taugate.retrieval.release.search_records import GateRecord
from taugate.retrieval.release.second_stage import FirstStageRecord, SecondStageRecord, TokenVectorsRecord
from taugate.retrieval.rerank.late_interaction import token_vectors_of
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
        folder: Folder of the reranker's files; None for an endpoint.
        first: Study of the first stage.
        known: Pairs to check the reranker.
    """

    searching: RerankedSearch
    record: SecondStageRecord
    folder: Path | None
    first: Study
    known: list[KnownPair]

    def write(self, release: Path) -> None:
        """Write the reranker, the known pairs, and what the first stage needs to answer alone.

        Raises:
            OSError: If a file cannot be written.
        """
        relevance = None if self.first.estimated is None else self.first.estimated.relevance
        score = None if self.first.answer_rule is None else self.first.answer_rule.score
        tokens = token_vectors_of(self.searching.reranker)
        RerankerFolder(release / RERANKER_FOLDER).write(self.folder, self.known, tokens)
        ModelsFolder(release / FIRST_STAGE_FOLDER).write(relevance, score)


def try_second_stage(
    inputs: CalibrationInputs, first: CorpusSearch, requested: RequestedReranker, spool: Path
) -> tuple[list[GateRecord], AcceptedSecondStage | None]:
    """Score the candidates of all queries, judge the second stage, and calibrate the first one if there will be two.

    A reranker that is named is used, and only judged. In a cheaper precision, it also has to pass the gate.

    Args:
        inputs: The data set and the settings.
        first: The search of the first stage.
        requested: The reranker.
        spool: Folder for files that a release may need.

    Returns:
        The gate's records, and the second stage if there is one.

    Raises:
        InputError: If the requested rule cannot be applied to the scores.
        RerankerUnavailable: If the reranker gives no scores.
    """
    settings, job = inputs.settings, inputs.job
    records: list[GateRecord] = []
    with job.stage("rerank"):
        reranker = requested.over(inputs.dataset.documents, spool, job)
        searching = RerankedSearch.score(first, requested, reranker, most_candidates(settings))
        if settings.candidates.rerank_candidates == "auto":
            searching, records = fewest_candidates(searching, requested)
    scale = SCALES[searching.scale]
    scale.check(settings.rule.policy, f"{scale.plural}, which this reranker gives")
    judged = _against_first(searching, requested)
    if requested.adaptation is not None:
        judged = _judge_adapted(judged, requested.adaptation, inputs)
    line = gate_line(judged.record)
    if judged.separation is not None:
        line += f"; {separation_in_words(judged.separation)}"
    used = judged.record.admitted or not requested.gated
    job.report(line if requested.gated else f"second stage as given; {line}")
    if used and not judged.record.admitted:
        job.report("warning: the second stage is not shown to help; --rerank auto:MODEL would leave it out")
    records.append(judged.record)
    if not used:
        ndcg = judged.record.ndcg
        change = f"NDCG@10 {ndcg.baseline:.3f} → {ndcg.candidate:.3f}, loss ≤ {ndcg.loss.upper:+.3f}"
        why = judged.worse_separation or f"the second one is not shown to help: {change}"
        job.report(f"warning: one stage is used, because {why}")
        return records, None
    cheaper = try_precision(first, searching, requested, spool)
    if cheaper is not None:
        records.append(cheaper[0].record)
        if cheaper[1] is not None:
            faster = _against_first(*cheaper[1])
            if faster.record.admitted or not requested.gated:
                judged, (searching, requested) = faster, cheaper[1]
    studied, alone = study_first_stage(inputs, first)
    known = known_pairs(searching)
    record = _record(searching, requested, judged, alone, known)
    return records, AcceptedSecondStage(searching, record, requested.reranker.folder, studied, known)


def _against_first(searching: RerankedSearch, requested: RequestedReranker) -> JudgedStage:
    """Compare the second stage with the first one."""
    return searching.judging.judge(requested.name, (searching.first_results, searching.results))


def _judge_adapted(judged: JudgedStage, adaptation: RerankerAdaptation, inputs: CalibrationInputs) -> JudgedStage:
    """Refuse a reranker that `taugate adapt` did not accept, and warn of one that learned from these queries."""
    if adaptation.pairs.split == inputs.dataset.split:
        inputs.job.report(
            f"warning: the reranker was trained on the split {inputs.dataset.split}, so figures measured on its "
            "queries look too good; calibrate on a split that it was not trained on"
        )
    if adaptation.admitted:
        return judged
    inputs.job.report(f"warning: taugate adapt did not accept the reranker: {adaptation.reason}")
    refused = {"admitted": False, "verdict": adaptation.gate.verdict, "statement": None}
    return replace(judged, record=judged.record.model_copy(update=refused))


def study_first_stage(
    inputs: CalibrationInputs, first: CorpusSearch, inherited: Inherited | None = None
) -> tuple[Study, FirstStageRecord]:
    """Calibrate the first stage alone, or measure what it inherits; returns the study and its record.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    studied = study(inputs, first, inherited)
    decided = decide(studied, inputs, inherited)
    return studied, FirstStageRecord(
        policy=decided.policy,
        relevance=decided.relevance,
        refusal=None if studied.refusal is None else studied.refusal.record,
        metrics=decided.metrics,
    )


def known_pairs(searching: RerankedSearch) -> list[KnownPair]:
    """Score some queries with their best candidate alone, as the service will.

    The queries with the smallest digests are taken, most of which a newer data set has, too.
    """
    dataset = searching.inputs.dataset
    digests = [sha256_json(query.text) for query in dataset.answerable]
    rows = np.argsort(digests, kind="stable")[:_KNOWN_PAIRS]
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
    first: FirstStageRecord,
    known: list[KnownPair],
) -> SecondStageRecord:
    model = requested.reranker
    digest = sha256_json([round(pair.score, 2) for pair in known])
    return SecondStageRecord(
        kind=model.kind,
        name=requested.name,
        model=requested.model,
        sha256=model.sha256 or digest,
        scores=searching.scale,
        candidates=searching.size,
        first_stage_weight=searching.first_stage_weight,
        precision=model.config.precision,
        tolerance=_ENDPOINT_TOLERANCE if model.folder is None else TOLERANCE,
        separation=judged.separation,
        token_vectors=token_vectors_record(searching.reranker),
        first=first,
    )


def token_vectors_record(reranker: Reranker) -> TokenVectorsRecord | None:
    """Describe the stored token vectors; None of other kinds than late interaction."""
    vectors = token_vectors_of(reranker)
    return None if vectors is None else TokenVectorsRecord.of(vectors, range(len(vectors)))
