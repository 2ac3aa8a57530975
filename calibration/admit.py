"""What is made cheaper: each way is tried, judged by the gate, and kept where it is admitted.

One kind after the other, precision first: what is tried next stands on what was admitted before, and is always judged
against the exact, unprojected float32 baseline, so that the whole of what will serve has passed. The gate's error is
divided among the kinds asked for (Bonferroni).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from calibration import precision
from calibration.data.dataset import Dataset
from calibration.encoding.corpus import EncodedDataset
from calibration.gate import judge
from calibration.metrics.bootstrap import Split
from calibration.projection.admit import Projected, admit_projection
from calibration.query_set.clusters import clusters
from calibration.settings import CalibrationSettings
from calibration.stopwatch import Stopwatch
from calibration.terminal import gate_line
from calibration.trial import Trial
from retrieval.encoder import OnnxEncoder
from retrieval.errors import InputError
from retrieval.projection import Projection
from retrieval.release.gate import GateRecord, ProjectionRecord

_FEWEST_QUERIES = 30  # as for the other parts of a calibration that fit something


@dataclass(frozen=True)
class Admitted:
    """What will serve.

    encoder: of queries; encoded: as it is searched; projection with its record: None without one; gate: all that was
    tried.
    """

    encoder: OnnxEncoder
    encoded: EncodedDataset
    projection: Projection | None
    record: ProjectionRecord | None
    gate: list[GateRecord]


def admit(
    dataset: Dataset,
    encoded: EncodedDataset,
    encoder: OnnxEncoder,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Try what the settings ask for. Raises InputError with too few queries, EncoderError where int8 cannot be had."""
    asked = [name for name in ("precision", "projection") if getattr(settings, name) not in {"float32", "none"}]
    if not asked:
        return Admitted(encoder, encoded, None, None, [])
    members = Split.of(np.random.default_rng(settings.seed), len(dataset.answerable), settings.holdout).calibration
    if len(members) < _FEWEST_QUERIES:
        raise InputError(
            f"--{asked[0]} {getattr(settings, asked[0])}: needs at least {_FEWEST_QUERIES} answerable queries to "
            f"calibrate on, there are {len(members)}; label more, or leave the option out"
        )
    queries = [dataset.answerable[position] for position in members.tolist()]
    trial = Trial(queries, encoded.answerable[members], encoded.documents, settings.k)
    baseline, labels = trial.outcome(), clusters(queries)
    gate = replace(settings.gate, confidence=1 - (1 - settings.gate.confidence) / len(asked))
    records: list[GateRecord] = []
    if "precision" in asked:
        tried = precision.in_int8(dataset, encoded, encoder, watch)
        moved = replace(trial, vectors=tried.encoded.answerable[members])
        with watch.stage("gate"):
            records += judge(baseline, [precision.candidate(moved, encoder, tried.encoder)], labels, gate)
        say(gate_line(records[-1]))
        wanted = settings.precision == "int8" or precision.is_faster(records[-1].gain)
        if records[-1].admitted and wanted:
            encoder, encoded, trial = tried.encoder, tried.encoded, moved
    found = Projected(encoded, None, None, [])
    if "projection" in asked:
        with watch.stage("gate"):
            found = admit_projection(trial, encoded, baseline, gate, settings)
        for record in found.gate:
            say(gate_line(record))
    return Admitted(encoder, found.encoded, found.projection, found.record, records + found.gate)
