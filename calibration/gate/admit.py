"""What is made cheaper: each way is tried, judged by the gate, and kept where it is admitted.

One kind after the other, precision, projection, index: what is tried next stands on what was admitted before, and is
always judged against the exact, unprojected, float32 baseline, so that the whole of what will serve has passed. The
gate's error is divided among the kinds asked for (Bonferroni).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.gate.gate import Candidate, Trial, gate_line, judge
from taugate.calibration.gate.indexes import Indexed, admit_index, kinds_asked
from taugate.calibration.gate.precision import admits_int8, golden_tolerance, in_int8
from taugate.calibration.gate.projection import RETENTIONS, Projected, admit_projection
from taugate.calibration.metrics.bootstrap import Split
from taugate.calibration.metrics.clusters import Units, clusters
from taugate.calibration.progress import Stopwatch
from taugate.calibration.risk.paired import least_loss
from taugate.calibration.settings.settings import (
    MARGIN,
    CalibrationSettings,
    CandidateSettings,
    GateSettings,
    default_margin,
)
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.build import AnyIndex
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.records import GateRecord, ProjectionRecord
from taugate.retrieval.vectors.projection import Projection


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
    cheaper, units = settings.candidates, Units.of(clusters(dataset.answerable))
    # As `study` splits them.
    members = Split.asked(np.random.default_rng(settings.seed), units, settings).calibration
    queries = [dataset.answerable[position] for position in members.tolist()]
    records: list[GateRecord] = []

    def trial(encoded: EncodedDataset) -> Trial:
        return Trial(queries, encoded.answerable[members], encoded.documents, settings.k)

    if not cheaper.requested:
        indexed = Indexed.exact(trial(encoded))
        return Admitted(encoder, encoded, None, None, indexed.index, indexed.record, records)
    with watch.stage("gate"):
        baseline, calibrating = trial(encoded).outcome(), units.take(members)
    kinds = kinds_asked(cheaper.index, len(dataset.documents))
    gate = _gate(cheaper, calibrating, max(1, len(kinds), cheaper.projection == "auto" and len(RETENTIONS)), say)

    def judged(candidates: Sequence[Candidate]) -> list[GateRecord]:
        found = judge(baseline, candidates, calibrating, gate)
        for record in found:
            say(gate_line(record))
        records.extend(found)
        return found

    float32, exact_queries, tolerance = encoder, encoded.answerable[members], TOLERANCE
    if "precision" in cheaper.requested:
        tried = in_int8(dataset, encoded, encoder, watch)
        with watch.stage("gate"):
            if admits_int8(trial(tried.encoded), encoder, tried.encoder, cheaper.precision, judged):
                encoder, encoded = tried.encoder, tried.encoded
    with watch.stage("gate"):
        projected = Projected(encoded, None, None, None)
        if "projection" in cheaper.requested:
            projected = admit_projection(trial(encoded), encoded, cheaper, settings.seed, judged)
        indexed = admit_index(trial(projected.encoded), projected.outcome, kinds, gate.margin or MARGIN, judged)
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


def _gate(cheaper: CandidateSettings, units: Units, candidates: int, say: Callable[[str], None]) -> GateSettings:
    """The error divided among what is asked for, and a margin that these queries can show where none is asked for.

    candidates: of the kind that has most of them, among which Holm's method divides the error once more.
    """
    confidence = 1 - (1 - cheaper.gate.confidence) / len(cheaper.requested)
    margin, least = cheaper.gate.margin, least_loss(units, 1 - (1 - confidence) / candidates)
    if margin is None:
        margin = default_margin(MARGIN, least)
        if margin > MARGIN:
            say(
                f"warning: the gate's margin is {margin:g} in place of {MARGIN:g}: {units.words} cannot show that less "
                "is lost, whatever is tried; label more, or set --margin"
            )
    if margin < least:
        say(
            f"warning: the gate's margin is {margin:g}, and {units.words} can exclude a loss of {least:.4f} at best: "
            "next to nothing can be admitted; label more, or give a larger --margin"
        )
    return GateSettings(margin, confidence)
