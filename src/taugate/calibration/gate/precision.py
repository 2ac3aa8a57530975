"""Encodes queries in int8 if the gate accepts it; documents keep float32, because they are encoded only once."""

from collections.abc import Callable, Sequence

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_queries
from taugate.calibration.encoding.source import int8_encoder
from taugate.calibration.gate.baseline import GateState, SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.gate.speeds import speeds
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.settings.settings import GateSettings
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.search_records import GateRecord
from taugate.retrieval.vectors.queries import map_dense

_TIMED, _LONE = 256, 32  # queries timed in a batch, and one by one: a few seconds on two cores
# Documents whose activations choose the int8 weights, and characters of one, as long as a long query. Three times as
# many choose nearly the same (docs/benchmarks/encoder.md).
_TEXTS, _MAX_CHARS = 100, 120
# More than the timing noise of a busy machine, and less than the gain of int8 on a processor with instructions for it
# (docs/research/gate.md).
_FASTER = 1.2


def try_int8(
    inputs: CalibrationInputs, baseline: SearchTrial, state: GateState, gate: GateSettings
) -> tuple[list[GateRecord], GateState]:
    """Encode the queries with int8 weights, and test their results.

    With `auto`, int8 also has to be clearly faster than float32 in the same run.

    Args:
        inputs: The data set and the settings, with the precision int8 or auto.
        baseline: The queries that judge, encoded in float32.
        state: Configuration accepted so far, with a float32 encoder.
        gate: Settings with the margin and the confidence.

    Returns:
        The record, and the new state, or `state` itself if int8 is not used.

    Raises:
        EncoderError: If the encoder has nothing to quantise.
    """
    documents = inputs.dataset.documents
    # Not queries, because they judge the result.
    texts = [documents[row].text[:_MAX_CHARS] for row in range(0, len(documents), max(1, len(documents) // _TEXTS))]
    int8 = ExportedEncoder.load(int8_encoder(state.accepted.encoder.folder, texts[:_TEXTS]))
    cache = EmbeddingCache.for_encoder(int8.sha256, int8.config.dimension)
    queries = encode_queries(inputs.dataset, int8, cache, inputs.job).vectors
    encoded = state.accepted.encoded.with_queries(lambda kind, vectors: map_dense(vectors, lambda _: queries[kind]))
    with inputs.job.stage("gate"):
        moved = state.with_queries(int8, encoded)
        timed = [query.text for query in moved.trial.queries[:_TIMED]]
        gain = _encoding_speeds(timed, state.accepted.encoder, int8)
        candidate = GateCandidate("int8", "precision", moved.trial.outcomes(), gain)
        (record,) = judge(baseline.exact_outcomes, [candidate], inputs.units, gate)
        faster = gain["queries_per_second"] > _FASTER * gain["baseline_queries_per_second"]
        used = record.admitted and (faster or inputs.settings.candidates.precision == "int8")
        return [record], moved if used else state


def golden_tolerance(baseline: SearchTrial, state: GateState) -> float:
    """Return the tolerance for scores on another processor: for int8 twice the largest difference from float32.

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


def _encoding_speeds(texts: Sequence[str], float32: ExportedEncoder, int8: ExportedEncoder) -> dict[str, float]:
    def encoding(encoder: ExportedEncoder) -> Callable[[Sequence[str]], object]:
        return lambda batch: encoder.encode(batch, "query")

    return speeds(encoding(float32), encoding(int8), texts, [[text] for text in texts[:_LONE]])
