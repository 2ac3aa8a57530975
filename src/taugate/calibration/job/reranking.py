"""Adds a second stage to a calibration: its precision, its number of candidates, and the first stage calibrated alone.

The model of a second stage in int8 or bfloat16, if the gate shows that its results are as good. The baseline is the
same second stage in float32: accuracy@K, NDCG@10 and, with unanswerable queries, AUROC must not fall by more than the
margin.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.baseline import speeds
from taugate.calibration.acceptance.better_lists import CheaperStage, JudgedStage, separation_in_words
from taugate.calibration.acceptance.cheaper_search import FASTER
from taugate.calibration.encoding.rerankers import RequestedReranker, cheaper_reranker
from taugate.calibration.encoding.source import CheaperPrecision
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.decide import decide
from taugate.calibration.study.reranked import RerankedSearch, score_pairs
from taugate.calibration.study.study import Inherited, Study, study
from taugate.errors import EncoderError
from taugate.evidence.acceptance import gate_line
from taugate.policy.score_relevance import SCALES
from taugate.release import search_records
from taugate.release.adaptation import RerankerAdaptation
from taugate.release.golden import TOLERANCE
from taugate.release.layout import FIRST_STAGE_FOLDER, RERANKER_FOLDER
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.folders import RerankerFolder
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import token_vectors_of
from taugate.retrieval.rerank.stage import Reranker, TextReranker
from taugate.storage.files import sha256_json

# In float32, 50 take a cross-encoder of six layers the default deadline; fewer than 10 would hardly be more than K.
SIZES = (10, 20, 50)
# Seconds for the candidates of one query: half of the service's default deadline (TAUGATE_RERANK_DEADLINE_MS), so that
# a query may also wait for the one before it.
_BUDGET = 0.5
_TIMED_QUERIES = 5  # queries

# Documents whose activations choose the int8 weights, each in two pairs: as many texts as for an encoder.
_DOCUMENTS = 50
_TIMED, _LONE = 3, 2  # queries timed in a row, and one by one: ten seconds of six layers in float32

# Enough to tell another model, few enough to score whenever an endpoint comes back.
_KNOWN_PAIRS = 4
# Scores of an endpoint may come from a GPU in half precision, whose batches move the third digit.
_ENDPOINT_TOLERANCE = 5e-3


def most_candidates(settings: CalibrationSettings) -> int:
    """Return how many candidates are scored at first; `auto` then tries fewer."""
    requested = settings.candidates.rerank_candidates
    return max(*SIZES, settings.k) if requested == "auto" else requested


def fewest_candidates(
    searching: RerankedSearch, requested: RequestedReranker
) -> tuple[RerankedSearch, list[search_records.GateRecord]]:
    """Limit a search to the fewest candidates that the gate accepts in place of the most that are in time.

    Sizes are judged from large to small, each at the whole confidence, until one is not accepted: a fixed sequence.

    Returns:
        The search, and the records of the sizes that were judged.
    """
    inputs, k, seconds = searching.inputs, searching.inputs.settings.k, _seconds(searching)
    sizes = [size for size in SIZES if k <= size <= searching.size] or [searching.size]
    in_time = [size for size in sizes if seconds * size / searching.size <= _BUDGET] or sizes[:1]
    inputs.job.report(
        f"second stage: {1000 * seconds:.0f} ms for {searching.size} candidates of a query; at most {in_time[-1]} "
        f"of them take {1000 * _BUDGET:.0f} ms"
    )
    chosen = largest = searching.limited(in_time[-1])
    records: list[search_records.GateRecord] = []
    for size in reversed(in_time[:-1]):
        fewer = largest.limited(size)
        per_candidate = 1000 * seconds / searching.size
        gain = {"baseline_milliseconds": per_candidate * largest.size, "milliseconds": per_candidate * size}
        stages, cheaper = (largest.results, fewer.results), CheaperStage("float32", gain, None)
        record = largest.judging.judge(requested.name, stages, cheaper).record
        inputs.job.report(gate_line(record))
        records.append(record)
        if not record.admitted:
            break
        chosen = fewer
    return chosen, records


def _seconds(searching: RerankedSearch) -> float:
    """Return the median time of all candidates of one query."""
    dataset, positions, times = searching.inputs.dataset, searching.answerable.first.positions[:_TIMED_QUERIES], []
    searching.reranker.forget()
    for query, row in zip(dataset.answerable, positions, strict=False):
        began = time.perf_counter()
        score_pairs(searching.reranker, [query.text], row[None], searching.inputs.job, "timing")
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def try_precision(
    first: CorpusSearch, exact: RerankedSearch, requested: RequestedReranker, spool: Path
) -> tuple[JudgedStage, tuple[RerankedSearch, RequestedReranker] | None] | None:
    """Score the candidates in the precision that the settings request, and judge the results; `auto` tries int8.

    Args:
        exact: The search of both stages in float32.

    Returns:
        The verdict, and the search and the reranker in that precision if they are accepted. None if no precision is
        requested, the reranker cannot have it, or, with `auto`, it is not clearly faster.
    """
    inputs, reranker = exact.inputs, requested.reranker
    settings, job, documents = inputs.settings.candidates, inputs.job, inputs.dataset.documents
    if settings.precision == "float32" or reranker.folder is None or reranker.is_cheaper:
        return None
    precision: CheaperPrecision = "int8" if settings.precision == "auto" else settings.precision
    texts = [documents[row].encoded_text for row in range(0, len(documents), max(1, len(documents) // _DOCUMENTS))]
    try:
        cheaper = cheaper_reranker(reranker, precision, texts[:_DOCUMENTS])
    except EncoderError as error:
        job.report(f"second stage in {precision}: not possible: {error}")
        return None
    moved = replace(requested, reranker=cheaper)
    with job.stage("rerank"):
        folder = spool / precision
        folder.mkdir(exist_ok=True)
        bound = moved.over(documents, folder, job)
        gain = _gain(exact, bound)
        if settings.precision == "auto" and gain["queries_per_second"] < FASTER * gain["baseline_queries_per_second"]:
            job.report(f"second stage in {precision}: not {FASTER:g} times as fast as float32 on this machine")
            return None
        searching = RerankedSearch.score(first, moved, bound, exact.size)
        cheaper_stage = CheaperStage(precision, gain, processor_path(precision))
        judged = exact.judging.judge(requested.name, (exact.results, searching.results), cheaper_stage)
    record = judged.record
    tokens = gain.get("tokens_per_pair")
    job.report(
        f"{gate_line(record)}; {gain['baseline_milliseconds']:.3g} → {gain['milliseconds']:.3g} ms for "
        f"{exact.size} candidates{'' if tokens is None else f', with {tokens:.0f} tokens a pair'}"
    )
    return judged, (searching, moved) if record.admitted else None


def _gain(exact: RerankedSearch, cheaper: Reranker) -> dict[str, float]:
    """Time both rerankers on the candidates of some queries, and count the tokens of a pair if one model reads both."""
    dataset, positions = exact.inputs.dataset, exact.answerable.first.positions[:_TIMED]
    candidates = [(query.text, row) for query, row in zip(dataset.answerable, positions, strict=False)]

    def scoring(reranker: Reranker) -> Callable[[Sequence[tuple[str, NDArray[np.int64]]]], object]:
        return lambda batch: [reranker.score(query, row) for query, row in batch]

    gain = speeds(scoring(exact.reranker), scoring(cheaper), candidates, [[query] for query in candidates[:_LONE]])
    if not (isinstance(cheaper, TextReranker) and isinstance(cheaper.scorer, CrossEncoder)):
        return gain
    texts = [[document.encoded_text for document in dataset.documents.at(row)] for _, row in candidates]
    read = [cheaper.scorer.tokenize(query, some) for (query, _), some in zip(candidates, texts, strict=True)]
    pairs = [pair for some in read for pair in some]
    return gain | {"tokens_per_pair": sum(len(pair.ids) for pair in pairs) / len(pairs)}


@dataclass(frozen=True)
class AcceptedSecondStage:
    """A second stage that is used, with the first stage calibrated alone."""

    searching: RerankedSearch
    record: search_records.SecondStageRecord
    folder: Path | None  # folder of the reranker's files; None for an endpoint
    first: Study
    known: list[search_records.KnownPair]

    def write(self, release: Path) -> None:
        """Write the reranker, the known pairs, and what the first stage needs to answer alone."""
        tokens = token_vectors_of(self.searching.reranker)
        RerankerFolder(release / RERANKER_FOLDER).write(self.folder, self.known, tokens)
        self.first.write_models(release / FIRST_STAGE_FOLDER)


def try_second_stage(
    inputs: CalibrationInputs, first: CorpusSearch, requested: RequestedReranker, spool: Path
) -> tuple[list[search_records.GateRecord], AcceptedSecondStage | None]:
    """Score the candidates of all queries, judge the second stage, and calibrate the first one if there will be two.

    A reranker that is named is used, and only judged. In a cheaper precision, it also has to pass the gate.

    Returns:
        The gate's records, and the second stage if there is one.
    """
    settings, job = inputs.settings, inputs.job
    records: list[search_records.GateRecord] = []
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
) -> tuple[Study, search_records.FirstStageRecord]:
    """Calibrate the first stage alone, or measure what it inherits; returns the study and its record."""
    studied = study(inputs, first, inherited)
    decided = decide(studied, inputs, inherited)
    return studied, search_records.FirstStageRecord(
        policy=decided.policy,
        relevance=decided.relevance,
        refusal=None if studied.refusal is None else studied.refusal.record,
        metrics=decided.metrics,
    )


def known_pairs(searching: RerankedSearch) -> list[search_records.KnownPair]:
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
        search_records.KnownPair(text, dataset.documents[position].id, score)
        for text, (position,), (score,) in zip(texts, best.tolist(), scores.tolist(), strict=True)
    ]


def _record(
    searching: RerankedSearch,
    requested: RequestedReranker,
    judged: JudgedStage,
    first: search_records.FirstStageRecord,
    known: list[search_records.KnownPair],
) -> search_records.SecondStageRecord:
    model = requested.reranker
    digest = sha256_json([round(pair.score, 2) for pair in known])
    return search_records.SecondStageRecord(
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


def token_vectors_record(reranker: Reranker) -> search_records.TokenVectorsRecord | None:
    """Describe the stored token vectors; None of other kinds than late interaction."""
    vectors = token_vectors_of(reranker)
    return (
        None
        if vectors is None
        else search_records.TokenVectorsRecord.of(vectors.dimension, vectors.counts(range(len(vectors))))
    )
