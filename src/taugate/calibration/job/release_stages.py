"""The stages that every calibration shares, from labelled queries that can be searched to a release."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Generic, Self, TypeVar, cast

from taugate.calibration.metrics.documents import chance_of_a_hit
from taugate.calibration.metrics.inputs import StudyInputs
from taugate.calibration.progress import Job
from taugate.calibration.provisional.state import AvailableEvidence, calibration_record
from taugate.calibration.report.page import render
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.decide import Decided, decide
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.outcomes import Calibrated, checked_answers, drift_reference, seen_hits
from taugate.calibration.study.search import StudiedSearch
from taugate.calibration.study.study import Study, study
from taugate.drift.sensitivity import sensitivity
from taugate.registry import writer
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import DriftRecord
from taugate.retrieval.release.layout import REFERENCE
from taugate.retrieval.release.manifest import DataFile, DataRecord, ReleaseManifest
from taugate.retrieval.release.outcome_records import BootstrapRecord
from taugate.retrieval.release.records import CalibrationRecord, CheckedAnswers
from taugate.retrieval.release.summary import summary_of

ManifestT = TypeVar("ManifestT", bound=ReleaseManifest)
InputsT = TypeVar("InputsT", bound=StudyInputs)
SearchT = TypeVar("SearchT", bound=StudiedSearch)


@dataclass(frozen=True)
class DecidedRelease(Decided):
    """The policy with what refuses queries, and the evidence for both. Fields are as in the manifest."""

    calibration: CalibrationRecord | None
    checked: CheckedAnswers | None
    drift: DriftRecord


class ReleaseStages(ABC, Generic[ManifestT, InputsT, SearchT]):
    """One calibration in progress.

    Attributes:
        releases: The directory of releases.
        job: Reports progress and warnings, and times the stages.
        settings: All settings.
        inputs: The labelled queries, their division, and the settings; set by reading.
        searching: The search that is studied; set before `study`.
        inherited: Parts of an earlier release to reuse, None to fit and choose everything now.
        adaptation: Record of the encoder's adaptation, None if it was not adapted.
        decided: What is recorded of every calibration; set by deciding.
        parent: Manifest of the current release, None if there is none that can be read.
    """

    inputs: InputsT
    searching: SearchT
    studied: Study
    decided: DecidedRelease

    def __init__(self, releases: Path, settings: CalibrationSettings, job: Job) -> None:
        self.releases, self.settings, self.job = releases, settings, job
        self.inherited: Inherited | None = None
        self.adaptation: AdaptationRecord | None = None
        self.parent: ReleaseManifest | None = None

    def study(self) -> Self:
        """Search for the labelled queries, and score them.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        self.studied = study(self.inputs, self.searching, self.inherited)
        return self

    def decide(self) -> Self:
        """Choose the threshold, and measure it.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        dataset, k = self.inputs.dataset, self.settings.k
        studied, settings = self.studied, self.settings
        decided = decide(studied, self.inputs, self.inherited)
        evidence = AvailableEvidence.count(dataset, k, self.adaptation)
        chance = chance_of_a_hit(dataset.answerable, dataset.parents, dataset.passages, k)
        reference, adjusted = drift_reference(studied, decided.policy), settings.rule.tau is not None
        self.decided = DecidedRelease(
            **vars(decided),
            calibration=calibration_record(seen_hits(studied), evidence, chance, adjusted=adjusted),
            checked=checked_answers(studied, decided.policy),
            drift=sensitivity(reference, settings.overlap_percentile),
        )
        return self

    @property
    def draft(self) -> ManifestT:
        """The manifest, which lacks id, times and files."""
        draft = self._manifest()(
            release_id="",
            created_at="",
            taugate_version=version("taugate"),
            parent=None,
            data=self._data(),
            bootstrap=BootstrapRecord.model_validate(self.settings, from_attributes=True),
            evidence=self.inputs.units.record,
            reference=REFERENCE,
            files={},
            **vars(self.decided),
        )
        return draft.model_copy(update={"summary": summary_of(draft)})

    def write(self) -> ManifestT:
        """Write the release, without promoting it; returns its manifest.

        Raises:
            OSError: If the release cannot be written; partial files are removed.
        """
        with self.job.stage("write"):
            draft = self.draft
            calibrated = Calibrated(**vars(self.studied), manifest=draft)
            fill = partial(self._write_files, calibrated, render(calibrated, self.parent, self.job.command))
            parent = None if self.parent is None else self.parent.release_id
            return writer.write(self.releases, draft, fill, parent=parent)

    def _data(self) -> DataRecord:
        """Describe the data set."""
        dataset = self.inputs.dataset
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

    @abstractmethod
    def _manifest(self) -> partial[ManifestT]:
        """Return the manifest's class, with the fields that other kinds of releases do not have."""

    @abstractmethod
    def _write_files(self, calibrated: Calibrated, report: str, release: Path) -> None:
        """Write every file of the release except its manifest into an empty folder."""
