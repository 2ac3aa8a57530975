"""What every stage of a calibration after the first one works on."""

from dataclasses import dataclass

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.dataset.labelled_queries import LabelledQueries


@dataclass(frozen=True)
class StudyInputs:
    """Labelled queries, their division, and the settings.

    Attributes:
        dataset: The labelled queries.
        drawn: All answerable queries, with their division.
        settings: Settings of the calibration.
        job: Reports progress and warnings, and times the stages.
    """

    dataset: LabelledQueries
    drawn: DrawnQueries
    settings: CalibrationSettings
    job: Job

    @property
    def units(self) -> SamplingUnits:
        """Sampling units of the answerable queries."""
        return self.drawn.units


@dataclass(frozen=True)
class CalibrationInputs(StudyInputs):
    """The inputs of a calibration on a corpus.

    Attributes:
        dataset: Labelled queries and documents.
    """

    dataset: Dataset
