"""Chooses how many candidates a second stage scores: the fewest whose results are as good as those of more."""

import statistics
import time

from taugate.calibration.acceptance.gate import gate_line
from taugate.calibration.acceptance.reranking import CheaperStage
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.reranked import RerankedSearch, score_pairs
from taugate.retrieval.release.search_records import GateRecord

# In float32, 50 take a cross-encoder of six layers the default deadline; fewer than 10 would hardly be more than K.
SIZES = (10, 20, 50)
# Seconds for the candidates of one query: half of the service's default deadline (TAUGATE_RERANK_DEADLINE_MS), so that
# a query may also wait for the one before it.
_BUDGET = 0.5
_TIMED = 5  # queries


def most_candidates(settings: CalibrationSettings) -> int:
    """Return how many candidates are scored at first; `auto` then tries fewer."""
    requested = settings.candidates.rerank_candidates
    return max(*SIZES, settings.k) if requested == "auto" else requested


def fewest_candidates(
    searching: RerankedSearch, requested: RequestedReranker
) -> tuple[RerankedSearch, list[GateRecord]]:
    """Limit a search to the fewest candidates that the gate accepts in place of the most that are in time.

    Sizes are judged from large to small, each at the whole confidence, until one is not accepted: a fixed sequence.

    Args:
        searching: The search with the most candidates.
        requested: Its reranker.

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
    records: list[GateRecord] = []
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
    dataset, positions, times = searching.inputs.dataset, searching.answerable.first.positions[:_TIMED], []
    searching.reranker.forget()
    for query, row in zip(dataset.answerable, positions, strict=False):
        began = time.perf_counter()
        score_pairs(searching.reranker, [query.text], row[None], searching.inputs.job, "timing")
        times.append(time.perf_counter() - began)
    return statistics.median(times)
