"""The model of a second stage in int8 or bfloat16, if the gate shows that its results are as good.

The baseline is the same second stage in float32: accuracy@K, NDCG@10 and, with unanswerable queries, AUROC must not
fall by more than the margin.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.gate import gate_line
from taugate.calibration.acceptance.precision import FASTER
from taugate.calibration.acceptance.reranking import CheaperStage, JudgedStage
from taugate.calibration.acceptance.speeds import speeds
from taugate.calibration.encoding.precisions import CheaperPrecision
from taugate.calibration.encoding.rerankers import RequestedReranker, cheaper_reranker
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.reranked import RerankedSearch
from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.reranker import Reranker, TextReranker

# Documents whose activations choose the int8 weights, each in two pairs: as many texts as for an encoder.
_DOCUMENTS = 50
_TIMED, _LONE = 3, 2  # queries timed in a row, and one by one: ten seconds of six layers in float32


def try_precision(
    first: CorpusSearch, exact: RerankedSearch, requested: RequestedReranker, spool: Path
) -> tuple[JudgedStage, tuple[RerankedSearch, RequestedReranker] | None] | None:
    """Score the candidates in the precision that the settings request, and judge the results; `auto` tries int8.

    Args:
        first: The search of the first stage.
        exact: The search of both stages in float32.
        requested: Its reranker.
        spool: Folder for files that a release may need.

    Returns:
        The verdict, and the search and the reranker in that precision if they are used: with `auto` they also have to
        be clearly faster. None if no precision is requested, or the reranker cannot have it.

    Raises:
        RerankerUnavailable: If there are no scores.
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
        searching = RerankedSearch.score(first, moved, bound, exact.size)
        gain = _gain(exact, bound)
        cheaper_stage = CheaperStage(precision, gain, processor_path(precision))
        judged = exact.judging.judge(requested.name, (exact.results, searching.results), cheaper_stage)
    record = judged.record
    tokens = gain.get("tokens_per_pair")
    job.report(
        f"{gate_line(record)}; {gain['baseline_milliseconds']:.3g} → {gain['milliseconds']:.3g} ms for "
        f"{exact.size} candidates{'' if tokens is None else f', with {tokens:.0f} tokens a pair'}"
    )
    faster = gain["queries_per_second"] > FASTER * gain["baseline_queries_per_second"]
    used = record.admitted and (faster or settings.precision != "auto")
    return judged, (searching, moved) if used else None


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
