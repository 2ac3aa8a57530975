"""Tries the requested candidates, one kind after the other, and keeps those that the gate accepts.

The lexical share comes first, because it changes the score. Precision follows, then projection, then index. Each of
these builds on the previously accepted candidates and is compared with the same exact, unprojected float32 baseline, so
that the complete configuration has passed. Their error is divided among the requested kinds (Bonferroni).

All labelled answerable queries judge, held-out ones included: no candidate is fitted on them, except projections, which
are always judged on queries that they were not fitted on.
"""

from collections.abc import Sequence
from dataclasses import replace

from taugate.calibration.acceptance.accepted import AcceptedSearch
from taugate.calibration.acceptance.baseline import GateState, SearchTrial
from taugate.calibration.acceptance.gate import gate_line
from taugate.calibration.acceptance.indexes import requested_kinds, scan_scale, try_indexes
from taugate.calibration.acceptance.lexical import add_lexical
from taugate.calibration.acceptance.precision import golden_tolerance, try_precisions
from taugate.calibration.acceptance.projection import VARIANTS, try_projection
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.calibration.risk.paired import min_detectable_loss
from taugate.calibration.settings.settings import MARGIN, CandidateSettings, GateSettings, default_margin
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.release.search_records import GateRecord
from taugate.retrieval.vectors.similarity import require_in_memory


def accept_candidates(inputs: CalibrationInputs, encoder: ExportedEncoder, encoded: EncodedTexts) -> AcceptedSearch:
    """Try the candidates that the settings request.

    Args:
        inputs: The data set and the settings.
        encoder: Encoder in float32.
        encoded: Vectors of the data set, by `encoder`.

    Raises:
        EncoderError: If a precision is requested by its name, and the encoder or this machine cannot have it.
    """
    dataset, settings, job = inputs.dataset, inputs.settings, inputs.job
    cheaper, documents = settings.candidates, require_in_memory(encoded.documents)
    trial = SearchTrial.build(dataset.answerable, encoded.answerable, documents, settings.k, dataset.documents.parents)
    with job.stage("gate"):
        tried, state = add_lexical(GateState.exact(encoder, encoded, trial), inputs)
    if not cheaper.requested:
        return replace(state.accepted, gate=tuple(tried))
    baseline, scale = state.trial, scan_scale(encoder, documents.shape[1])
    kinds = requested_kinds(cheaper.index, len(dataset.documents), scale)
    gate = gate_settings(cheaper, inputs.units, max(1, len(kinds), cheaper.projection == "auto" and len(VARIANTS)), job)
    if "precision" in cheaper.requested:
        records, state = try_precisions(inputs, baseline, state, gate)
        tried += _reported(records, job)
    with job.stage("gate"):
        if "projection" in cheaper.requested:
            records, state = try_projection(inputs, baseline, state, gate)
            tried += _reported(records, job)
        if kinds:
            records, state = try_indexes(inputs.units, baseline, state, kinds, gate)
            tried += _reported(records, job)
        return replace(state.accepted, gate=tuple(tried), golden_tolerance=golden_tolerance(baseline, state))


def accept_updated_index(inputs: CalibrationInputs, state: GateState) -> AcceptedSearch:
    """Build the index of an updated corpus with the encoder and projection that were accepted before.

    Only the index is tested again, against exact search of the same vectors.

    Args:
        inputs: The data set, and the settings with the kind of index.
        state: Exact search of the updated documents with the accepted encoder and projection.
    """
    settings, units, job = inputs.settings, inputs.units, inputs.job
    kinds = requested_kinds(settings.candidates.index, len(state.trial.documents))
    if not kinds:
        return state.accepted
    with job.stage("gate"):
        gate = gate_settings(settings.candidates, units, len(kinds), job)
        records, indexed = try_indexes(units, state.trial, state, kinds, gate)
        return replace(indexed.accepted, gate=tuple(_reported(records, job)))


def _reported(records: Sequence[GateRecord], job: Job) -> Sequence[GateRecord]:
    for record in records:
        job.report(gate_line(record))
    return records


def gate_settings(cheaper: CandidateSettings, units: SamplingUnits, candidates: int, job: Job) -> GateSettings:
    """Divide the error among the requested kinds, and choose a margin that these queries can show if none is set.

    Args:
        cheaper: Requested candidates.
        units: Sampling units of the queries that judge.
        candidates: Largest number of candidates of one kind, or of sequences of them, that divide the error once more.
        job: Reports a margin that is widened or too small for these queries.
    """
    confidence = 1 - (1 - cheaper.gate.confidence) / max(1, len(cheaper.requested))
    margin, detectable = cheaper.gate.margin, min_detectable_loss(units, 1 - (1 - confidence) / candidates)
    if margin is None:
        margin = default_margin(MARGIN, detectable)
        if margin > MARGIN:
            job.report(
                f"warning: the gate's margin is {margin:g} in place of {MARGIN:g}, because {units.words} cannot show a "
                "smaller loss; add labels or set --margin"
            )
    if margin < detectable:
        job.report(
            f"warning: the gate's margin is {margin:g}, but with {units.words} the gate cannot detect a loss below "
            f"{detectable:.4f}, so it will accept almost nothing; add labels or raise --margin"
        )
    return GateSettings(margin, confidence)
