"""Queries are encoded in int8 where the gate admits it; documents stay in float32, as they are encoded only once."""

from collections.abc import Callable, Sequence

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import EncodedTexts, encode_queries
from taugate.calibration.encoding.source import int8_encoder
from taugate.calibration.gate.baseline import GateBaseline, GateState
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.progress import Stopwatch, speeds
from taugate.calibration.settings.settings import GateSettings, PrecisionChoice
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.records import GateRecord

_TIMED, _LONE = 256, 32  # queries, of them one by one: a few seconds on two cores
# More than a busy machine mistakes, and less than int8 gains where the processor has instructions for it
# (docs/benchmarks/gate.md).
_FASTER = 1.2


def try_int8(
    baseline: GateBaseline,
    state: GateState,
    dataset: Dataset,
    precision: PrecisionChoice,
    gate: GateSettings,
    watch: Stopwatch,
) -> tuple[list[GateRecord], GateState]:
    """Encode the queries with int8 weights, and judge what they find.

    With `auto`, int8 also has to be clearly faster than float32 in the same run.

    Args:
        baseline: Baseline to judge against.
        state: What serves so far, with a float32 encoder.
        dataset: Data set whose queries are encoded.
        precision: "int8" or "auto".
        gate: Margin and confidence.
        watch: Stopwatch whose stages "encode" and "gate" grow.

    Returns:
        The one record, and what serves from here on: `state` itself where int8 is not used.

    Raises:
        EncoderError: Where the encoder has nothing to quantise.
    """
    int8 = OnnxEncoder.load(int8_encoder(state.admitted.encoder.folder))
    encoded = _encode_queries(dataset, state.admitted.encoded, int8, watch)
    with watch.stage("gate"):
        moved = state.with_queries(int8, encoded, encoded.answerable[baseline.members])
        texts = [query.text for query in moved.trial.queries[:_TIMED]]
        gain = _encoding_speeds(texts, state.admitted.encoder, int8)
        candidate = GateCandidate("int8", "precision", moved.trial.outcomes(), gain)
        (record,) = judge(baseline.outcomes, [candidate], baseline.units, gate)
        faster = gain["queries_per_second"] > _FASTER * gain["baseline_queries_per_second"]
        used = record.admitted and (faster or precision == "int8")
        return [record], moved if used else state


def golden_tolerance(baseline: GateBaseline, state: GateState) -> float:
    """Return how far scores may be from what another processor gives: in int8 twice as far as any of float32 is.

    An activation that is rounded the other way, as another processor's last bit may have it, changes everything behind
    it by as much as rounding itself does (docs/benchmarks/gate.md).

    Args:
        baseline: Baseline with the calibration queries in float32.
        state: What serves, with the same queries by its own encoder.
    """
    if state.admitted.float32 is None:
        return TOLERANCE
    fitted, float32 = state.admitted.projection, baseline.trial.vectors
    projected = float32 if fitted is None else fitted.projection.apply(float32)
    exact = state.admitted.index.search(projected, baseline.trial.k)
    difference = exact.scores - state.admitted.index.search(state.trial.vectors, baseline.trial.k).scores
    return max(TOLERANCE, 2 * float(np.abs(difference).max()))


def _encode_queries(dataset: Dataset, encoded: EncodedTexts, encoder: OnnxEncoder, watch: Stopwatch) -> EncodedTexts:
    """Encode the queries of `encoded` once more; its documents stay."""
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    return encode_queries(dataset, encoder, cache, watch).replace_in(encoded)


def _encoding_speeds(texts: Sequence[str], float32: OnnxEncoder, int8: OnnxEncoder) -> dict[str, float]:
    def encoding(encoder: OnnxEncoder) -> Callable[[Sequence[str]], object]:
        return lambda batch: encoder.encode(batch, "query")

    return speeds(encoding(float32), encoding(int8), texts, [[text] for text in texts[:_LONE]])
