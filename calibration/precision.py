"""Queries encoded in int8 where the gate admits it. Documents stay as the float32 encoder has them: they cost once."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibration.data.dataset import Dataset
from calibration.encoding.cache import EmbeddingCache
from calibration.encoding.corpus import EncodedDataset
from calibration.encoding.encode import encode
from calibration.encoding.source import int8_encoder
from calibration.gate import Candidate
from calibration.stopwatch import Stopwatch
from calibration.trial import Trial
from retrieval.encoder import OnnxEncoder

_TIMED, _LONE, _ROUNDS = 256, 32, 3  # queries, of them one by one, and rounds: a few seconds on two cores


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
    watch.add("encode", queries.seconds)
    count = len(dataset.answerable)
    moved = replace(encoded, answerable=queries.vectors[:count], unanswerable=queries.vectors[count:])
    return Encoded(int8, moved)


def candidate(trial: Trial, float32: OnnxEncoder, int8: OnnxEncoder) -> Candidate:
    """What the gate judges; trial: the calibration queries as int8 encodes them."""
    texts = [query.text for query in trial.queries[:_TIMED]]
    return Candidate("int8", "precision", trial.outcome(), _gain(texts, float32, int8))


def is_faster(gain: dict[str, float]) -> bool:
    """Whether it answered more queries per second than float32 in the same run."""
    return gain["queries_per_second"] > gain["baseline_queries_per_second"]


def _gain(texts: Sequence[str], float32: OnnxEncoder, int8: OnnxEncoder) -> dict[str, float]:
    """Median of rounds in which the two take turns: the machine's moods are the same for both."""
    batched: dict[str, list[float]] = {"baseline_": [], "": []}
    lone: dict[str, list[float]] = {"baseline_": [], "": []}
    for _ in range(_ROUNDS):
        for name, encoder in (("baseline_", float32), ("", int8)):
            batched[name].append(_seconds(encoder, [texts]))
            lone[name] += [_seconds(encoder, [[text]]) for text in texts[:_LONE]]
    gain = {f"{name}queries_per_second": len(texts) / statistics.median(times) for name, times in batched.items()}
    return gain | {f"{name}milliseconds": 1000 * statistics.median(times) for name, times in lone.items()}


def _seconds(encoder: OnnxEncoder, batches: Sequence[Sequence[str]]) -> float:
    began = time.perf_counter()
    for texts in batches:
        encoder.encode(texts, "query")
    return time.perf_counter() - began
