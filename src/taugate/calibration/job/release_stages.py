"""The stages that every calibration shares, from labelled queries that can be searched to a release."""

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from taugate.calibration.metrics.documents import chance_of_a_hit
from taugate.calibration.metrics.inputs import StudyInputs
from taugate.calibration.progress import Job
from taugate.calibration.provisional.state import AvailableEvidence, calibration_record
from taugate.calibration.report.page import render
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.decide import decide
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.outcomes import Calibrated, checked_answers, drift_reference, seen_hits
from taugate.calibration.study.search import StudiedSearch
from taugate.calibration.study.study import Study, study
from taugate.drift.sensitivity import sensitivity
from taugate.registry import writer
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.summary import summary_of

ManifestT = TypeVar("ManifestT", bound=ReleaseManifest)
InputsT = TypeVar("InputsT", bound=StudyInputs)
SearchT = TypeVar("SearchT", bound=StudiedSearch)


class ReleaseStages(ABC, Generic[ManifestT, InputsT, SearchT]):
    """One calibration in progress. Every stage adds its records to the manifest.

    Attributes:
        schema: Kind of the manifest.
        releases: The directory of releases.
        job: Reports progress and warnings, and times the stages.
        settings: All settings.
        inputs: The labelled queries, their division, and the settings; set by reading.
        searching: The search that is studied; set before `study`.
        inherited: Parts of an earlier release to reuse, None to fit and choose everything now.
        adaptation: Record of the encoder's adaptation, None if it was not adapted.
        records: Records of the manifest, by field.
        parent: Manifest of the current release, None if there is none that can be read.
    """

    schema: type[ManifestT]
    inputs: InputsT
    searching: SearchT
    studied: Study

    def __init__(self, releases: Path, settings: CalibrationSettings, job: Job) -> None:
        self.releases, self.settings, self.job = releases, settings, job
        self.inherited: Inherited | None = None
        self.adaptation: AdaptationRecord | None = None
        self.parent: ReleaseManifest | None = None
        self.records: dict[str, Any] = {}

    def study(self) -> Self:
        """Search for the labelled queries, and score them.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        self.studied = study(self.inputs, self.searching, self.inherited)
        self.records |= self.studied.records
        return self

    def decide(self) -> Self:
        """Choose the threshold, and measure it.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        dataset, k = self.inputs.dataset, self.settings.k
        decided = decide(self.studied, self.inputs, self.inherited)
        policy = decided["policy"]
        evidence = AvailableEvidence.count(dataset, k, self.adaptation)
        chance = chance_of_a_hit(dataset.answerable, dataset.parents, dataset.passages, k)
        reference = drift_reference(self.studied, policy)
        self.records |= decided | {
            "calibration": calibration_record(
                seen_hits(self.studied), evidence, chance, adjusted=self.settings.rule.tau is not None
            ),
            "checked": checked_answers(self.studied, policy),
            "drift": sensitivity(reference, self.settings.overlap_percentile),
        }
        return self

    @property
    def calibrated(self) -> Calibrated:
        """The study with the manifest so far, which lacks id, times and files."""
        draft = self.schema(release_id="", created_at="", parent=None, files={}, **self.records)
        manifest = draft.model_copy(update={"summary": summary_of(draft)})
        return Calibrated(**vars(self.studied), manifest=manifest)

    def write(self) -> ManifestT:
        """Write the release, without promoting it; returns its manifest.

        Raises:
            OSError: If the release cannot be written; partial files are removed.
        """
        with self.job.stage("write"):
            calibrated = self.calibrated
            fill = partial(self._write_files, calibrated, render(calibrated, self.parent, self.job.command))
            parent = None if self.parent is None else self.parent.release_id
            records = self.records | {"summary": calibrated.manifest.summary}
            return writer.write(self.releases, self.schema, records, fill, parent=parent)

    @abstractmethod
    def _write_files(self, calibrated: Calibrated, report: str, release: Path) -> None:
        """Write every file of the release except its manifest into an empty folder."""
