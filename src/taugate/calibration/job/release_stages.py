"""The last stages of every calibration: deciding, putting the manifest together, and writing the release."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar, cast

from taugate.calibration.encoding.encoder_options import REPLY_TOLERANCE
from taugate.calibration.job.stages import Accepted, EncodedData, Read, write_files
from taugate.calibration.metrics.inputs import StudyInputs, chance_of_a_hit
from taugate.calibration.progress import Job
from taugate.calibration.provisional import AvailableEvidence, calibration_record
from taugate.calibration.report.page import render
from taugate.calibration.study.decide import Decided, decide
from taugate.calibration.study.outcomes import Calibrated, checked_answers, drift_reference, seen_hits
from taugate.calibration.study.study import Inherited, Study, study
from taugate.data.labelled_queries import LabelledQueries
from taugate.drift.alarm import sensitivity
from taugate.registry import writer
from taugate.release import layout
from taugate.release.adaptation import AdaptationRecord
from taugate.release.evidence import DriftRecord
from taugate.release.manifest import (
    DataFile,
    DataRecord,
    EncoderRecord,
    Manifest,
    ReleaseManifest,
    RetrieverRecord,
    RunManifest,
)
from taugate.release.outcome_records import BootstrapRecord
from taugate.release.records import CalibrationRecord, CheckedAnswers
from taugate.release.state import UpdateRecord, WithdrawnRecord
from taugate.release.summary import summary_of
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.lexical import lexical_record

M = TypeVar("M", bound=ReleaseManifest)


@dataclass(frozen=True)
class DecidedRelease(Decided):
    """The policy with what refuses queries, and the evidence for both. Fields are as in the manifest."""

    calibration: CalibrationRecord | None
    checked: CheckedAnswers | None
    drift: DriftRecord


def decide_release(
    inputs: StudyInputs, studied: Study, inherited: Inherited | None = None, adaptation: AdaptationRecord | None = None
) -> DecidedRelease:
    """Choose the threshold, and measure it; `adaptation` is that of the encoder."""
    dataset, settings = inputs.dataset, inputs.settings
    decided = decide(studied, inputs, inherited)
    evidence = AvailableEvidence.count(dataset, settings.k, adaptation)
    chance = chance_of_a_hit(dataset.answerable, dataset.parents, dataset.passages, settings.k)
    reference, adjusted = drift_reference(studied, decided.policy), settings.rule.tau is not None
    return DecidedRelease(
        **vars(decided),
        calibration=calibration_record(seen_hits(studied), evidence, chance, adjusted=adjusted),
        checked=checked_answers(studied, decided.policy),
        drift=sensitivity(reference, settings.overlap_percentile),
    )


@dataclass(frozen=True)
class Calibration:
    """A calibration of a corpus, stage by stage, before anything is written."""

    read: Read
    encoded: EncodedData
    accepted: Accepted
    studied: Study
    decided: DecidedRelease

    @classmethod
    def of(cls, read: Read, encoded: EncodedData, accepted: Accepted) -> "Calibration":
        """Study the queries by the accepted search, and decide."""
        studied = study(read.inputs, accepted.searching, read.inherited)
        decided = decide_release(read.inputs, studied, read.inherited, read.adaptation)
        return cls(read, encoded, accepted, studied, decided)

    def manifest(self, update: UpdateRecord | None = None, withdrawn: list[WithdrawnRecord] | None = None) -> Manifest:
        """Return the manifest of the release, which lacks id, times and files."""
        read, search, texts, second = self.read, self.accepted.search, self.studied.texts, self.accepted.second
        if texts is None:
            raise TypeError("a corpus has texts or vectors")
        dataset, settings, config = read.inputs.dataset, read.inputs.settings, search.encoder.config
        # An endpoint may reply to the same text with another vector.
        of_replies = 0.0 if config.endpoint is None else REPLY_TOLERANCE * (config.max_cosine_difference or 0.0)
        counts = {
            "truncated_documents": self.encoded.texts.truncated_documents,
            "empty_documents": dataset.empty or None,
            "own_documents": dataset.own_documents or None,
        }
        manifest = partial(
            Manifest,
            adaptation=read.adaptation,
            encoder=_encoder_record(search.documents or search.encoder),
            accepts_vectors=settings.accept_vectors or None,
            query_encoder=None if search.documents is None else _encoder_record(search.encoder),
            float32_encoder=None if search.float32 is None else _encoder_record(search.float32),
            projection=None if search.projection is None else search.projection.record,
            index=search.index_record,
            isotropy=texts.isotropy,
            query_set=texts.query_set,
            encoder_fit=read.fit,
            engine=search.engine,
            lexical=None if search.lexical_part is None else lexical_record(*search.lexical_part),
            gate=list(search.gate),
            skipped=list(search.skipped) or None,
            second_stage=None if second is None else second.record,
            golden=layout.GOLDEN,
            golden_tolerance=max(search.golden_tolerance, of_replies),
            update=update,
            withdrawn=withdrawn or None,
        )
        return _completed(manifest, read.inputs, self.decided, _data(dataset).model_copy(update=counts))

    def write(self, releases: Path, manifest: Manifest) -> Manifest:
        """Write the release, without promoting it; returns its manifest."""

        def fill(calibrated: Calibrated, report: str, release: Path) -> None:
            accepted = self.accepted
            write_files(accepted.search, calibrated, accepted.first.queries, self.read.spool, report, release)
            if accepted.second is not None:
                accepted.second.write(release)

        return write_release(releases, manifest, self.studied, fill, self.read.parent, self.read.job)


def run_manifest(
    inputs: StudyInputs, decided: DecidedRelease, retriever: RetrieverRecord, off_topic: str | None
) -> RunManifest:
    """Return the manifest of a calibration on a run, as `Calibration.manifest`; `off_topic` digests a second run."""
    data = _data(inputs.dataset)
    if off_topic is not None:
        data = data.model_copy(update={"sha256": {**data.sha256, "off_topic": off_topic}})
    return _completed(partial(RunManifest, retriever=retriever), inputs, decided, data)


def _completed(manifest: partial[M], inputs: StudyInputs, decided: DecidedRelease, data: DataRecord) -> M:
    """Add to the fields of one kind of release those that all have."""
    draft = manifest(
        release_id="",
        created_at="",
        taugate_version=version("taugate"),
        parent=None,
        data=data,
        bootstrap=BootstrapRecord.model_validate(inputs.settings, from_attributes=True),
        evidence=inputs.units.record,
        reference=layout.REFERENCE,
        files={},
        **vars(decided),
    )
    return draft.model_copy(update={"summary": summary_of(draft)})


def write_release(
    releases: Path,
    draft: M,
    studied: Study,
    fill: Callable[[Calibrated, str, Path], None],
    parent: ReleaseManifest | None,
    job: Job,
) -> M:
    """Write a release, without promoting it; returns its manifest.

    Args:
        fill: Writes every file of the release except its manifest into an empty folder, given the report.
        parent: Manifest of the current release, None if there is none that can be read.
    """
    with job.stage("write"):
        calibrated = Calibrated(**vars(studied), manifest=draft)
        files = partial(fill, calibrated, render(calibrated, parent, job.command))
        return writer.write(releases, draft, files, parent=None if parent is None else parent.release_id)


def _data(dataset: LabelledQueries) -> DataRecord:
    """Describe the data set."""
    answerable, unanswerable = len(dataset.answerable), len(dataset.unanswerable)
    return DataRecord(
        name=dataset.name,
        split=dataset.split,
        documents=dataset.passages,
        queries=answerable + unanswerable,
        answerable=answerable,
        unanswerable=unanswerable,
        truncated_documents=0,
        sha256=cast("dict[DataFile, str]", {**dataset.sha256}),
        relevant_from=dataset.relevant_from,
    )


def _encoder_record(encoder: ExportedEncoder) -> EncoderRecord:
    return EncoderRecord(**encoder.config.model_dump(), sha256=encoder.sha256)
