"""Try everything cheaper that is asked for, one kind after the other, and keep what the gate admits.

Precision comes first, then projection, then index. Each step starts from what was admitted before it and is judged
against the one exact, unprojected, float32 baseline, so that the whole of what will serve has passed. The gate's error
is divided among the kinds asked for (Bonferroni).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.gate.baseline import Admitted, GateBaseline, GateState, SearchTrial
from taugate.calibration.gate.gate import gate_line
from taugate.calibration.gate.indexes import kinds_asked, try_indexes
from taugate.calibration.gate.precision import golden_tolerance, try_int8
from taugate.calibration.gate.projection import RETENTIONS, try_projection
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import QueryPart
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
from taugate.retrieval.release.records import GateRecord
from taugate.retrieval.vectors.similarity import whole


def admit(  # noqa: PLR0913, PLR0917 (all that a calibration has by now)
    dataset: Dataset,
    encoded: EncodedDataset,
    encoder: OnnxEncoder,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Try what the settings ask for.

    Args:
        dataset: Data set that is calibrated on.
        encoded: Its vectors, by `encoder`, which is in float32.
        part: The calibration queries.
        settings: Of the calibration.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages "encode" and "gate" grow.

    Raises:
        EncoderError: Where int8 is asked for and this encoder cannot have it.
    """
    cheaper, members, units = settings.candidates, part.members, part.resamples.units
    queries = [dataset.answerable[position] for position in members.tolist()]
    vectors, parents = encoded.answerable[members], dataset.documents.parents
    trial = SearchTrial.build(queries, vectors, whole(encoded.documents), settings.k, parents)
    state = GateState.exact(encoder, encoded, trial)
    if not cheaper.requested:
        return state.admitted
    with watch.stage("gate"):
        baseline = GateBaseline.judge(members, units, trial)
    kinds = kinds_asked(cheaper.index, len(dataset.documents))
    gate = gate_settings(cheaper, units, max(1, len(kinds), cheaper.projection == "auto" and len(RETENTIONS)), say)
    tried: list[GateRecord] = []
    if "precision" in cheaper.requested:
        records, state = try_int8(baseline, state, dataset, cheaper.precision, gate, watch)
        tried += _told(records, say)
    with watch.stage("gate"):
        if "projection" in cheaper.requested:
            records, state = try_projection(baseline, state, cheaper, settings.seed, gate)
            tried += _told(records, say)
        if kinds:
            records, state = try_indexes(baseline, state, kinds, gate)
            tried += _told(records, say)
        return replace(state.admitted, gate=tuple(tried), golden_tolerance=golden_tolerance(baseline, state))


def readmit(
    state: GateState,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Build the index of an updated corpus, where encoder and projection stay as they were admitted.

    Only the index is judged again, against exact search of the same vectors.

    Args:
        state: Exact search of the updated documents by what was admitted before.
        part: The calibration queries.
        settings: Of the calibration, whose kind of index is built.
        say: As for `admit`.
        watch: As for `admit`.
    """
    kinds = kinds_asked(settings.candidates.index, len(state.trial.documents))
    if not kinds:
        return state.admitted
    with watch.stage("gate"):
        baseline = GateBaseline.judge(part.members, part.resamples.units, state.trial)
        gate = gate_settings(settings.candidates, part.resamples.units, len(kinds), say)
        records, indexed = try_indexes(baseline, state, kinds, gate)
        return replace(indexed.admitted, gate=tuple(_told(records, say)))


def _told(records: Sequence[GateRecord], say: Callable[[str], None]) -> Sequence[GateRecord]:
    for record in records:
        say(gate_line(record))
    return records


def gate_settings(
    cheaper: CandidateSettings, units: SamplingUnits, candidates: int, say: Callable[[str], None]
) -> GateSettings:
    """Divide the error among what is asked for, and choose a margin that these queries can show where none is given.

    Args:
        cheaper: What is asked for.
        units: What counts as one draw among the calibration queries.
        candidates: Candidates of the kind that has most of them, among which Holm's method divides the error once more.
        say: Told of a margin that was widened, or that can hardly be shown.
    """
    confidence = 1 - (1 - cheaper.gate.confidence) / max(1, len(cheaper.requested))
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
