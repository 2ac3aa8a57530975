"""Encodes queries in int8 or bfloat16 if the gate accepts it; documents keep float32: they are encoded only once.

With `auto`, bfloat16 is judged first, because it changes similarities by a fifth of what int8 does, and int8 only if
bfloat16 was accepted. In this fixed sequence both are judged at the gate's whole confidence (Maurer, Hothorn and
Lehmacher, 1995).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from taugate.calibration.acceptance.baseline import GateState, SearchTrial
from taugate.calibration.acceptance.gate import GateCandidate, judge
from taugate.calibration.acceptance.speeds import speeds
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_queries
from taugate.calibration.encoding.precisions import MAX_CHARS, CheaperPrecision, cheaper_encoder
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.settings.settings import GateSettings
from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.search_records import GateRecord, SkippedCandidate
from taugate.retrieval.vectors.queries import map_dense
from taugate.retrieval.vectors.similarity import Float32

_SEQUENCE: tuple[CheaperPrecision, ...] = ("bfloat16", "int8")
_TIMED, _LONE = 256, 32  # queries timed in a batch, and one by one: a few seconds on two cores
# Documents whose activations choose the int8 weights. Three times as many choose nearly the same
# (docs/benchmarks/encoder.md).
_TEXTS = 100
# More than the timing noise of a busy machine, and less than the gain of int8 on a processor with instructions for it
# (docs/research/gate.md).
FASTER = 1.2


def try_precisions(
    inputs: CalibrationInputs, baseline: SearchTrial, state: GateState, gate: GateSettings
) -> tuple[list[GateRecord], GateState]:
    """Encode the queries in cheaper precisions, and test their results.

    With `auto`, a precision also has to be clearly faster than float32 in the same run, and one that the encoder or
    this machine cannot have is recorded and skipped.

    Args:
        inputs: The data set and the settings, with the precision int8, bfloat16 or auto.
        baseline: The queries that judge, encoded in float32.
        state: Configuration accepted so far, with a float32 encoder.
        gate: Settings with the margin and the confidence.

    Returns:
        A record for every precision that was judged, and the new state: with the last one that is used, or as before.

    Raises:
        EncoderError: If the precision that is requested by its name cannot be had.
    """
    requested = inputs.settings.candidates.precision
    records: list[GateRecord] = []
    skipped: list[SkippedCandidate] = []
    used = state
    for precision in _SEQUENCE:
        if requested not in ("auto", precision):
            continue
        try:
            encoder = _cheaper(inputs, state.accepted.encoder, precision)
        except EncoderError as error:
            if requested != "auto":
                raise
            skipped.append(SkippedCandidate(candidate=precision, kind="precision", reason=str(error)))
            inputs.job.report(f"gate: {precision}: not possible: {error}")
            continue
        record, moved = _judged(inputs, baseline, state, encoder, gate)
        records.append(record)
        if not record.admitted:
            break
        faster = record.gain["queries_per_second"] > FASTER * record.gain["baseline_queries_per_second"]
        if faster or requested == precision:
            used = moved
    return records, replace(used, accepted=replace(used.accepted, skipped=tuple(skipped)))


def _cheaper(inputs: CalibrationInputs, float32: ExportedEncoder, precision: CheaperPrecision) -> ExportedEncoder:
    documents = inputs.dataset.documents
    # Not queries, because they judge the result.
    texts = [documents[row].text[:MAX_CHARS] for row in range(0, len(documents), max(1, len(documents) // _TEXTS))]
    return ExportedEncoder.load(cheaper_encoder(float32.folder, precision, texts[:_TEXTS]))


def _judged(
    inputs: CalibrationInputs, baseline: SearchTrial, state: GateState, encoder: ExportedEncoder, gate: GateSettings
) -> tuple[GateRecord, GateState]:
    """Encode the queries by `encoder`, and judge their results; other parameters as for `try_precisions`."""
    cache = EmbeddingCache.of(encoder)
    queries = cast("dict[str, Float32]", encode_queries(inputs.dataset, encoder, cache, inputs.job).vectors)
    encoded = state.accepted.encoded.with_queries(lambda kind, vectors: map_dense(vectors, lambda _: queries[kind]))
    with inputs.job.stage("gate"):
        moved = state.with_queries(encoder, encoded)
        timed = [query.text for query in moved.trial.queries[:_TIMED]]
        precision = encoder.config.precision
        candidate = GateCandidate(
            precision,
            "precision",
            moved.trial.outcomes(),
            _encoding_speeds(timed, state.accepted.encoder, encoder),
            processor_path(precision) if encoder.config.runtime == "kernel" else None,
        )
        (record,) = judge(baseline.exact_outcomes, [candidate], inputs.units, gate)
        return record, moved


def golden_tolerance(baseline: SearchTrial, state: GateState) -> float:
    """Return the tolerance for scores on another processor: in a cheaper precision twice the change from float32.

    If another processor's last bit rounds an activation the other way, later layers change by as much as rounding
    itself changes them (docs/research/gate.md).

    Args:
        baseline: The queries, encoded in float32.
        state: Accepted configuration, with the same queries by its own encoder.
    """
    if state.accepted.float32 is None:
        return TOLERANCE
    fitted, float32 = state.accepted.projection, baseline.vectors
    projected = float32 if fitted is None else map_dense(float32, fitted.projection.apply)
    exact = state.accepted.index.search(projected, baseline.k)
    difference = exact.scores - state.accepted.index.search(state.trial.vectors, baseline.k).scores
    return max(TOLERANCE, 2 * float(np.abs(difference).max()))


def _encoding_speeds(texts: Sequence[str], float32: ExportedEncoder, cheaper: ExportedEncoder) -> dict[str, float]:
    def encoding(encoder: ExportedEncoder) -> Callable[[Sequence[str]], object]:
        return lambda batch: encoder.encode(batch, "query")

    return speeds(encoding(float32), encoding(cheaper), texts, [[text] for text in texts[:_LONE]])
