"""What every stage of a calibration after the first one works on."""

from dataclasses import dataclass

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.ingestion.dataset.beir import Dataset


@dataclass(frozen=True)
class CalibrationInputs:
    """A labelled data set, the division of its queries, and the settings.

    Attributes:
        dataset: Labelled queries and documents.
        drawn: All answerable queries, with their division.
        settings: Settings of the calibration.
        job: Reports progress and warnings, and times the stages.
    """

    dataset: Dataset
    drawn: DrawnQueries
    settings: CalibrationSettings
    job: Job

    @property
    def units(self) -> SamplingUnits:
        """Sampling units of the answerable queries."""
        return self.drawn.units
