"""Queries encoded in int8 where the gate admits it. Documents stay as the float32 encoder has them: they cost once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import EncodedDataset, encode
from taugate.calibration.encoding.source import int8_encoder
from taugate.calibration.gate.gate import Candidate, Judge, Trial
from taugate.calibration.progress import Stopwatch, speeds
from taugate.calibration.settings.settings import PrecisionChoice
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.build import AnyIndex
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.vectors.similarity import Float32

_TIMED, _LONE = 256, 32  # queries, of them one by one: a few seconds on two cores
# More than a busy machine mistakes, and less than int8 gains where the processor has instructions for it
# (docs/benchmarks/gate.md).
_FASTER = 1.2


@dataclass(frozen=True)
class Encoded:
    """An encoder with the data set as its queries and the float32 encoder's documents are."""

    encoder: OnnxEncoder
    encoded: EncodedDataset


def in_int8(dataset: Dataset, encoded: EncodedDataset, encoder: OnnxEncoder, watch: Stopwatch) -> Encoded:
    """The queries once more, by the encoder with int8 weights."""
    int8 = OnnxEncoder.load(int8_encoder(encoder.folder))
    labelled = dataset.answerable + dataset.unanswerable
    cache = EmbeddingCache.of(int8.sha256, int8.config.dimension)
    queries = encode(int8, (query.text for query in labelled), len(labelled), "query", cache)
    off_topic = encode(int8, dataset.off_topic, len(dataset.off_topic), "query", cache)
    watch.add("encode", queries.seconds + off_topic.seconds)
    count = len(dataset.answerable)
    answerable, unanswerable = queries.vectors[:count], queries.vectors[count:]
    moved = replace(encoded, answerable=answerable, unanswerable=unanswerable, off_topic=off_topic.vectors)
    return Encoded(int8, moved)


def admits_int8(trial: Trial, float32: OnnxEncoder, int8: OnnxEncoder, asked: PrecisionChoice, judged: Judge) -> bool:
    """Whether int8 is to be used; trial: the calibration queries as int8 encodes them.

    With `auto` it also has to be clearly faster than float32 in the same run.
    """
    texts = [query.text for query in trial.queries[:_TIMED]]
    (record,) = judged([Candidate("int8", "precision", trial.outcome(), _gain(texts, float32, int8))])
    faster = record.gain["queries_per_second"] > _FASTER * record.gain["baseline_queries_per_second"]
    return record.admitted and (faster or asked == "int8")


def golden_tolerance(float32: Float32, int8: Float32, index: AnyIndex, k: int) -> float:
    """How far scores in int8 may be from what another processor gives: twice as far as any of float32 is.

    An activation that is rounded the other way, as another processor's last bit may have it, changes everything behind
    it by as much as rounding itself does (docs/benchmarks/gate.md). float32, int8: (q, d) the same queries.
    """
    difference = index.search(float32, k).scores - index.search(int8, k).scores
    return max(TOLERANCE, 2 * float(np.abs(difference).max()))


def _gain(texts: Sequence[str], float32: OnnxEncoder, int8: OnnxEncoder) -> dict[str, float]:
    def encoding(encoder: OnnxEncoder) -> Callable[[Sequence[str]], object]:
        return lambda batch: encoder.encode(batch, "query")

    return speeds(encoding(float32), encoding(int8), texts, [[text] for text in texts[:_LONE]])
