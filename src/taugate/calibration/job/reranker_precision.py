"""The cross-encoder of a second stage in int8 or bfloat16, if the gate shows that its results are as good.

The baseline is the same second stage in float32: accuracy@K, NDCG@10 and, with unanswerable queries, AUROC must not
fall by more than the margin.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from taugate.calibration.encoding.precisions import CheaperPrecision
from taugate.calibration.encoding.rerankers import RequestedReranker, cheaper_reranker
from taugate.calibration.gate.gate import gate_line
from taugate.calibration.gate.precision import FASTER
from taugate.calibration.gate.reranking import CheaperStage, JudgedStage
from taugate.calibration.gate.speeds import speeds
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.reranked import RerankedSearch
from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.reranker import TextReranker

# Documents whose activations choose the int8 weights, each in two pairs: as many texts as for an encoder.
_DOCUMENTS = 50
_TIMED, _LONE = 3, 2  # queries timed in a row, and one by one: ten seconds of six layers in float32


def try_precision(
    first: CorpusSearch, exact: RerankedSearch, requested: RequestedReranker
) -> tuple[JudgedStage, tuple[RerankedSearch, RequestedReranker] | None] | None:
    """Score the candidates in the precision that the settings request, and judge the results; `auto` tries int8.

    Args:
        first: The search of the first stage.
        exact: The search of both stages in float32.
        requested: Its reranker.

    Returns:
        The verdict, and the search and the reranker in that precision if they are used: with `auto` they also have to
        be clearly faster. None if no precision is requested, or the reranker cannot have it.

    Raises:
        RerankerUnavailable: If there are no scores.
    """
    inputs, reranker = exact.inputs, requested.reranker
    settings, job, documents = inputs.settings.candidates, inputs.job, inputs.dataset.documents
    if settings.precision == "float32" or not isinstance(reranker, CrossEncoder) or reranker.is_cheaper:
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
        bound = TextReranker(cheaper, documents)
        searching = RerankedSearch.score(first, moved, bound, exact.size)
        gain = _gain(exact, reranker, cheaper)
        cheaper_stage = CheaperStage(precision, gain, processor_path(precision))
        judged = exact.judging.judge(requested.name, (exact.results, searching.results), cheaper_stage)
    record = judged.record
    job.report(
        f"{gate_line(record)}; {gain['baseline_milliseconds']:.0f} → {gain['milliseconds']:.0f} ms for "
        f"{exact.size} candidates, with {gain['tokens_per_pair']:.0f} tokens a pair"
    )
    faster = gain["queries_per_second"] > FASTER * gain["baseline_queries_per_second"]
    used = record.admitted and (faster or settings.precision != "auto")
    return judged, (searching, moved) if used else None


def _gain(exact: RerankedSearch, float32: CrossEncoder, cheaper: CrossEncoder) -> dict[str, float]:
    """Time both rerankers on the candidates of some queries, and count the tokens of a pair."""
    dataset, positions = exact.inputs.dataset, exact.answerable.first.positions[:_TIMED]
    candidates = [
        (query.text, [dataset.documents[position].encoded_text for position in row])
        for query, row in zip(dataset.answerable, positions.tolist(), strict=False)
    ]

    def scoring(reranker: CrossEncoder) -> Callable[[Sequence[tuple[str, list[str]]]], object]:
        return lambda batch: [reranker.score(query, texts) for query, texts in batch]

    pairs = [pair for query, texts in candidates for pair in float32.tokenize(query, texts)]
    gain = speeds(scoring(float32), scoring(cheaper), candidates, [[query] for query in candidates[:_LONE]])
    return gain | {"tokens_per_pair": sum(len(pair.ids) for pair in pairs) / len(pairs)}
