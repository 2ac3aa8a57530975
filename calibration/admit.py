"""What is made cheaper: each way is tried, judged by the gate, and kept where it is admitted.

One kind after the other, precision, projection, index: what is tried next stands on what was admitted before, and is
always judged against the exact, unprojected, float32 baseline, so that the whole of what will serve has passed. The
gate's error is divided among the kinds asked for (Bonferroni).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.data.dataset import Dataset
from calibration.encoding.corpus import EncodedDataset
from calibration.gate import Candidate, judge
from calibration.indexes.admit import Indexed, admit_index, kinds_asked
from calibration.metrics.bootstrap import Split
from calibration.precision import admits_int8, golden_tolerance, in_int8
from calibration.projection.admit import Projected, admit_projection
from calibration.query_set.clusters import clusters
from calibration.settings import CalibrationSettings
from calibration.stopwatch import Stopwatch
from calibration.terminal import gate_line
from calibration.trial import Trial
from retrieval.encoder import OnnxEncoder
from retrieval.index.build import AnyIndex
from retrieval.projection import Projection
from retrieval.release.gate import GateRecord, ProjectionRecord
from retrieval.release.golden import TOLERANCE
from retrieval.release.manifest import IndexRecord


@dataclass(frozen=True)
class Admitted:
    """What will serve.

    encoder: of queries; encoded: as it is searched; projection with its record: None without one; gate: all that was
    tried; golden_tolerance: how far scores may be from these on another processor; float32: what an encoder in int8 was
    made of.
    """

    encoder: OnnxEncoder
    encoded: EncodedDataset
    projection: Projection | None
    projection_record: ProjectionRecord | None
    index: AnyIndex
    index_record: IndexRecord
    gate: list[GateRecord]
    golden_tolerance: float = TOLERANCE
    float32: OnnxEncoder | None = None


def admit(
    dataset: Dataset,
    encoded: EncodedDataset,
    encoder: OnnxEncoder,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Try what the settings ask for. Raises EncoderError where int8 cannot be had."""
    cheaper, members = settings.cheaper, _members(dataset, settings)
    queries = [dataset.answerable[position] for position in members.tolist()]
    records: list[GateRecord] = []

    def trial(encoded: EncodedDataset) -> Trial:
        return Trial(queries, encoded.answerable[members], encoded.documents, settings.k)

    if not cheaper.asked:
        indexed = Indexed.exact(trial(encoded))
        return Admitted(encoder, encoded, None, None, indexed.index, indexed.record, records)
    with watch.stage("gate"):
        baseline, labels = trial(encoded).outcome(), clusters(queries)
    gate = replace(cheaper.gate, confidence=1 - (1 - cheaper.gate.confidence) / len(cheaper.asked))

    def judged(candidates: Sequence[Candidate]) -> list[GateRecord]:
        found = judge(baseline, candidates, labels, gate)
        for record in found:
            say(gate_line(record))
        records.extend(found)
        return found

    float32, exact_queries, tolerance = encoder, encoded.answerable[members], TOLERANCE
    if "precision" in cheaper.asked:
        tried = in_int8(dataset, encoded, encoder, watch)
        with watch.stage("gate"):
            if admits_int8(trial(tried.encoded), encoder, tried.encoder, cheaper.precision, judged):
                encoder, encoded = tried.encoder, tried.encoded
    with watch.stage("gate"):
        projected = Projected(encoded, None, None, None)
        if "projection" in cheaper.asked:
            projected = admit_projection(trial(encoded), encoded, cheaper, settings.seed, judged)
        kinds = kinds_asked(cheaper.index, len(dataset.documents))
        indexed = admit_index(trial(projected.encoded), projected.outcome, kinds, gate.margin, judged)
        if encoder.config.precision == "int8":
            projection = projected.projection
            before = projection.apply(exact_queries) if projection else exact_queries
            tolerance = golden_tolerance(before, projected.encoded.answerable[members], indexed.index, settings.k)
    return Admitted(
        encoder,
        projected.encoded,
        projected.projection,
        projected.record,
        indexed.index,
        indexed.record,
        records,
        tolerance,
        None if encoder is float32 else float32,
    )


def _members(dataset: Dataset, settings: CalibrationSettings) -> NDArray[np.int64]:
    """Positions of the answerable queries that calibrate, as `study` splits them."""
    return Split.of(np.random.default_rng(settings.seed), len(dataset.answerable), settings.holdout).calibration
