"""Read, encode and index a data set once, and calibrate on it any number of times without writing a release."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.encoding import encoded_set
from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.job.stages import sampling_units
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.study import Study, study
from taugate.data.beir import Dataset
from taugate.evidence.measure import DrawnQueries
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import Index


@dataclass(frozen=True)
class IndexedSet:
    """One split of a data set with its vectors and a flat index.

    Attributes:
        dataset: Documents and queries.
        encoded: Their vectors.
        index: Of the documents.
    """

    dataset: Dataset
    encoded: EncodedDataset
    index: Index

    @classmethod
    def read(cls, folder: Path, split: str, encoder: str, spool: Path) -> Self:
        """Read and encode a data set, through the project's own cache; progress goes to stdout."""
        dataset, encoded = encoded_set(folder, split, spool, encoder)
        return cls(dataset, encoded, FlatIndex.build(encoded.documents))

    def studied(self, settings: CalibrationSettings) -> tuple[Study, CalibrationInputs]:
        """Search and score the queries as `taugate calibrate` does, but without the gate and without a threshold."""
        units = sampling_units(self.dataset, settings, Job())
        drawn = DrawnQueries.draw(units, len(self.dataset.documents), settings)
        inputs = CalibrationInputs(self.dataset, drawn, settings, Job())
        return study(inputs, CorpusSearch(inputs, self.encoded, self.index)), inputs
