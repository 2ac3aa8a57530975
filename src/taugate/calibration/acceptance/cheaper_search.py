"""Choice of the index and of the encoder of queries: exact and float32, unless the gate accepts a cheaper one.

Encodes queries in int8 or bfloat16 if the gate accepts it; documents keep float32: they are encoded only once. With
`auto`, a candidate that is hardly cheaper is left out before any label is looked at: a precision that is not clearly
faster on this machine, or an index that is not clearly smaller. The fastest precision is judged at the gate's whole
confidence. If it is refused, the others have no error left.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from taugate.calibration.acceptance.baseline import GateState, SearchTrial, speeds
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_queries
from taugate.calibration.encoding.source import MAX_CHARS, CheaperPrecision, cheaper_encoder
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.settings import IndexChoice
from taugate.errors import EncoderError, InputError
from taugate.evidence.acceptance import GateCandidate, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.rules import MARGIN, GateSettings
from taugate.policy.arrays import Float32, QueryVectors, dense_of, map_dense
from taugate.release.encoder import Precision
from taugate.release.golden import TOLERANCE
from taugate.release.names import INDEX_KINDS, Kind
from taugate.release.search_records import GateRecord, SkippedCandidate
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build, sizes
from taugate.retrieval.index.top_k import DocumentScorer, Searchable, TopK
from taugate.retrieval.vectors import Projection

TOGETHER = 16  # questions, as a busy service encodes them
_ALTERNATIONS, _QUESTIONS = 5, 160


def encoding_rates(encoders: Mapping[Precision, ExportedEncoder], questions: Sequence[str]) -> dict[Precision, float]:
    """Return how many questions a second of processor time each encoder encodes, 16 together.

    It is the median of five rounds in which the encoders take turns on one thread, so that other work on the machine
    hardly matters.
    """
    timed = [questions[at : at + TOGETHER] for at in range(0, min(len(questions), _QUESTIONS), TOGETHER)]
    alone = {precision: encoder.single_threaded() for precision, encoder in encoders.items()}
    for encoder in alone.values():
        encoder.encode(timed[0], "query")  # the first batch allocates memory
    spent: dict[Precision, list[float]] = {precision: [] for precision in alone}
    for _ in range(_ALTERNATIONS):
        for precision, encoder in alone.items():
            began = time.process_time()
            for batch in timed:
                encoder.encode(batch, "query")
            spent[precision].append(time.process_time() - began)
    count = sum(len(batch) for batch in timed)
    return {precision: count / max(statistics.median(times), 1e-9) for precision, times in spent.items()}


def speed_line(encoder: ExportedEncoder, rate: float, float32: float) -> str:
    """Return the progress line for the speed of a candidate beside that of float32, in questions a second."""
    precision = encoder.config.precision
    path = processor_path(precision) if encoder.config.runtime == "kernel" else None
    return (
        f"gate: {precision}: {rate:.0f} questions a second here, {TOGETHER} together on one thread, "
        f"{rate / float32:.2f} times float32 ({encoder.config.runtime if path is None else path})"
    )


# Share of the exact top-K that an index may miss, as a share of the margin. On mixed_large accuracy@5 loses half of
# that share, so an eighth of the margin is lost and the remainder allows for chance (benchmarks/decisions.md).
MISSED = 0.25
_BREADTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_TIMED, _LONE = 256, 64  # queries timed in a batch, and one by one
# Kinds that `auto` tries in order of preference, by the largest number of documents. Comparing a query with int8 codes
# takes 8 ns a document of 384 dimensions: 0.4 ms for 50,000, a third of what encoding the query takes in int8.
_AUTO: tuple[tuple[int, tuple[Kind, ...]], ...] = ((10_000, ()), (50_000, ("flat-int8",)))
# Weights by which the encoder of these numbers, all-MiniLM-L6-v2, multiplies each token, by dimension of its vectors.
_WEIGHTS_A_DIMENSION = 28_339
# From so many documents on a graph takes minutes to build and 0.7 GB of memory, codes a fifth of that (384 dimensions
# on 2 cores, benchmarks/results/gate.md).
_MAX_GRAPH = 1_000_000

_PRECISIONS: tuple[CheaperPrecision, ...] = ("bfloat16", "int8")
# Documents whose activations choose the int8 weights. Three times as many choose nearly the same
# (benchmarks/results/encoder.md).
_TEXTS = 100
# More than the timing noise of a busy machine, and less than the gain of int8 on a processor with instructions for it
# (benchmarks/decisions.md).
FASTER = 1.2
SMALLER = 1.5  # bytes per document of exact search, over those of an index

# Returns the questions a second of each encoder, by its precision.
MeasureRates = Callable[[Mapping[Precision, ExportedEncoder], Sequence[str]], Mapping[Precision, float]]


def check_index_trainable(choice: IndexChoice, documents: int) -> None:
    """Raise InputError if there are too few documents to train the requested kind of index."""
    if choice != "auto" and documents < (needed := INDEX_KINDS[choice].min_documents):
        raise InputError(
            f"--index {choice}: its codes need {needed} documents to train, and there are only {documents}; "
            "choose another index, or auto"
        )


def requested_kinds(choice: IndexChoice, documents: int, scale: float = 1.0) -> tuple[Kind, ...]:
    """Return the kinds of index to try in order of preference; none for exact search in float32."""
    if choice != "auto":
        return () if INDEX_KINDS[choice].baseline else (choice,)
    graph: tuple[Kind, ...] = ("hnsw" if documents <= _MAX_GRAPH else "ivf-pq", "flat-int8")
    return next((kinds for max_documents, kinds in _AUTO if documents <= max_documents * scale), graph)


def scan_scale(encoder: ExportedEncoder, dimension: int) -> float:
    """Return how many times as many documents a query may be compared with as _AUTO says.

    That is the cost of encoding over the cost of one comparison, counted in multiplications and not in seconds, so that
    the same input gives the same release. It is at least 1: among fewer documents, a graph is no faster than a scan.
    """
    return max(1.0, encoder.multiplied_weights / dimension / _WEIGHTS_A_DIMENSION)


def try_indexes(
    units: SamplingUnits, baseline: SearchTrial, state: GateState, kinds: tuple[Kind, ...], gate: GateSettings
) -> tuple[list[GateRecord], GateState]:
    """Build and test an index of each kind, and take the first that is accepted.

    An index is measured against exact search of the same vectors. If there is a projection, its loss is added. That
    loss is measured on queries on which the projection was not fitted, because the final one was fitted on these
    queries.

    Args:
        baseline: These queries, encoded in float32 and not projected.
        kinds: Kinds of index in order of preference; of several, those that are not clearly smaller are left out.

    Returns:
        A record for each kind that was judged, and the new state, which is as before if the gate accepts no kind.
    """
    trial, margin = state.trial, gate.margin or MARGIN
    exact = trial.exact.search(trial.vectors, trial.depth)
    before = trial.judge(exact)
    indexes = [build_index(kind, trial, margin) for kind in kinds]
    if len(kinds) > 1:
        skipped = [_too_large(index, trial) for index in indexes if not _is_smaller(index, trial)]
        indexes, state = [index for index in indexes if _is_smaller(index, trial)], state.leaving_out(skipped)
    candidates = [
        GateCandidate(
            _name(index),
            "index",
            (state.outcomes or before).shifted(before, trial.outcomes(index)),
            search_gain(trial, index),
            exact=INDEX_KINDS[index.kind].lossless,
        )
        for index in indexes
    ]
    records = judge(baseline.exact_outcomes, candidates, units, gate)
    for index, record in zip(indexes, records, strict=True):
        if record.admitted:
            return records, state.with_index(index, recall(trial.searched(index), trial.exact, trial.vectors, exact))
    return records, state


def build_index(kind: Kind, trial: SearchTrial, margin: float) -> AnyIndex:
    """Build an index of the trial's documents, with the search breadth that the margin requires."""
    index = build(kind, trial.documents)
    if index.breadth is not None:
        set_breadth(index, trial.flat, dense_of(trial.vectors), trial.depth, margin)
    return index


def set_breadth(index: ApproximateIndex, flat: Searchable, queries: QueryVectors, depth: int, margin: float) -> None:
    """Set the smallest breadth that has the recall a margin requires, or the widest if none has it.

    Args:
        queries: (q, d) float32.
    """
    exact = flat.search(queries, depth)
    for breadth in _BREADTHS:
        if breadth >= index.min_breadth(depth):
            index.breadth = breadth
            everything = index.breadth < breadth  # all lists are searched
            if everything or recall(index, flat, queries, exact) >= 1 - MISSED * margin:
                return


def recall(index: Searchable, flat: DocumentScorer, queries: QueryVectors, exact: TopK) -> float:
    """Return the mean share of the exact top-K that an index finds.

    Args:
        queries: (q, d) float32.
        exact: (q, K) results of exact search.
    """
    return share_found(flat, queries, exact, index.search(queries, exact.positions.shape[1]))


def share_found(flat: DocumentScorer, queries: QueryVectors, exact: TopK, results: TopK) -> float:
    """Return the mean share of the (q, K) exact results that are among the (q, K) results of an index.

    A document as similar as the last exact result counts as found.
    """
    return float(np.mean(flat.score(queries, results.positions) >= exact.scores[:, -1:]))


def search_gain(trial: SearchTrial, index: AnyIndex, projection: Projection | None = None) -> dict[str, float]:
    """Measure the size and speed of an index and of exact search.

    Returns:
        Speeds with the names of `speeds`; `bytes_per_document` of the file that every search reads, and
        `disk_bytes_per_document` of all files; for exact search with the prefix `baseline_`.
    """
    searched = trial.searched(index)
    lone = [trial.vectors[row : row + 1] for row in range(min(_LONE, len(trial.vectors)))]
    gain = speeds(
        lambda vectors: trial.exact.search(vectors, trial.k),
        lambda vectors: searched.search(map_dense(vectors, projection.apply) if projection else vectors, trial.k),
        trial.vectors[:_TIMED],
        lone,
    )
    for prefix, measured in (("baseline_", trial.flat), ("", index)):
        memory, disk = sizes(measured)
        gain[f"{prefix}bytes_per_document"] = memory / len(measured)
        gain[f"{prefix}disk_bytes_per_document"] = disk / len(measured)
    return gain


def _is_smaller(index: AnyIndex, trial: SearchTrial) -> bool:
    return SMALLER * sizes(index)[0] <= sizes(trial.flat)[0]


def _too_large(index: AnyIndex, trial: SearchTrial) -> SkippedCandidate:
    gain = {
        f"{prefix}bytes_per_document": sizes(measured)[0] / len(measured)
        for prefix, measured in (("baseline_", trial.flat), ("", index))
    }
    reason = f"not {SMALLER:g} times smaller per document than exact search"
    return SkippedCandidate(candidate=_name(index), kind="index", reason=reason, gain=gain)


def _name(index: AnyIndex) -> str:
    return index.kind if index.breadth is None else f"{index.kind}, breadth {index.breadth}"


def try_precisions(
    inputs: CalibrationInputs,
    baseline: SearchTrial,
    state: GateState,
    gate: GateSettings,
    rates: MeasureRates = encoding_rates,
) -> tuple[list[GateRecord], GateState]:
    """Encode the queries in a cheaper precision, and test their results.

    Args:
        inputs: The data set and the settings, with the precision int8, bfloat16 or auto.
        baseline: The queries that judge, encoded in float32.
        state: Configuration accepted so far, with a float32 encoder.

    Returns:
        The record of the precision that was judged, if any, and the new state, which searches as before unless it is
        accepted.
    """
    requested, float32 = inputs.settings.candidates.precision, state.accepted.encoder
    encoders: dict[Precision, ExportedEncoder] = {}
    for precision in _PRECISIONS:
        if requested not in ("auto", precision):
            continue
        try:
            encoders[precision] = _cheaper(inputs, float32, precision)
        except EncoderError as error:
            if requested != "auto":
                raise
            state = state.leaving_out([SkippedCandidate(candidate=precision, kind="precision", reason=str(error))])
            inputs.job.report(f"gate: {precision}: not possible: {error}")
    if not encoders:
        return [], state
    with inputs.job.stage("gate"):
        measured = rates({"float32": float32, **encoders}, [query.text for query in baseline.queries])
    for name, encoder in encoders.items():
        inputs.job.report(speed_line(encoder, measured[name], measured["float32"]))
    fastest = max(encoders, key=measured.__getitem__)
    left_out = []
    for name in encoders:
        reason = "" if name == fastest else f"{fastest} is faster"
        if requested == "auto" and measured[name] < FASTER * measured["float32"]:
            reason = f"not {FASTER:g} times as fast as float32 on this machine"
        if reason:
            gain = _rates(name, measured)
            left_out.append(SkippedCandidate(candidate=name, kind="precision", reason=reason, gain=gain))
    state = state.leaving_out(left_out)
    if len(left_out) == len(encoders):
        return [], state
    record, moved = _judged(inputs, baseline, state, encoders[fastest], _rates(fastest, measured), gate)
    return [record], moved if record.admitted else state


def _rates(precision: Precision, measured: Mapping[Precision, float]) -> dict[str, float]:
    return {"baseline_queries_per_second": measured["float32"], "queries_per_second": measured[precision]}


def _cheaper(inputs: CalibrationInputs, float32: ExportedEncoder, precision: CheaperPrecision) -> ExportedEncoder:
    documents = inputs.dataset.documents
    # Not queries, because they judge the result.
    texts = [documents[row].text[:MAX_CHARS] for row in range(0, len(documents), max(1, len(documents) // _TEXTS))]
    return ExportedEncoder.load(cheaper_encoder(float32.folder, precision, texts[:_TEXTS]))


def _judged(
    inputs: CalibrationInputs,
    baseline: SearchTrial,
    state: GateState,
    encoder: ExportedEncoder,
    gain: dict[str, float],
    gate: GateSettings,
) -> tuple[GateRecord, GateState]:
    """Encode the queries by `encoder`, which has a gain, and judge their results; see `try_precisions`."""
    cache = EmbeddingCache.of(encoder)
    queries = cast("dict[str, Float32]", encode_queries(inputs.dataset, encoder, cache, inputs.job).vectors)
    encoded = state.accepted.encoded.with_queries(lambda kind, vectors: map_dense(vectors, lambda _: queries[kind]))
    with inputs.job.stage("gate"):
        moved = state.with_queries(encoder, encoded)
        precision = encoder.config.precision
        candidate = GateCandidate(
            precision,
            "precision",
            moved.trial.outcomes(),
            gain,
            processor_path(precision) if encoder.config.runtime == "kernel" else None,
        )
        (record,) = judge(baseline.exact_outcomes, [candidate], inputs.units, gate)
        return record, moved


def golden_tolerance(baseline: SearchTrial, state: GateState) -> float:
    """Return the tolerance for scores on another processor: in a cheaper precision twice the change from float32.

    If another processor's last bit rounds an activation the other way, later layers change by as much as rounding
    itself changes them (benchmarks/decisions.md).

    Args:
        baseline: The queries, encoded in float32.
    """
    if state.accepted.float32 is None:
        return TOLERANCE
    fitted, float32 = state.accepted.projection, baseline.vectors
    projected = float32 if fitted is None else map_dense(float32, fitted.projection.apply)
    exact = state.accepted.index.search(projected, baseline.k)
    difference = exact.scores - state.accepted.index.search(state.trial.vectors, baseline.k).scores
    return max(TOLERANCE, 2 * float(np.abs(difference).max()))
