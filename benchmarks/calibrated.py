"""Read, encode and index a data set once, and calibrate on it any number of times without writing a release."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import EncodedDataset, encode_dataset
from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.metrics.clusters import ClusterIds, SamplingUnits, clusters
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.study import Findings, study
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.flat import FlatIndex


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
    index: FlatIndex

    @classmethod
    def read(cls, folder: Path, split: str, encoder: str, spool: Path) -> Self:
        """Read and encode a data set, through the project's own cache; progress goes to stdout."""
        model = OnnxEncoder.load(exported_encoder(encoder))
        cache = EmbeddingCache.for_encoder(model.sha256, model.config.dimension)
        dataset = read_dataset(folder, split, spool)
        encoded = encode_dataset(dataset, model, cache, lambda line: print(f"{folder.name}: {line}"), Stopwatch())
        return cls(dataset, encoded, FlatIndex.build(encoded.documents))

    @property
    def labels(self) -> ClusterIds:
        """Number the clusters of all queries, the answerable ones first."""
        return clusters(self.dataset.answerable + self.dataset.unanswerable)

    def calibrate(self, settings: CalibrationSettings) -> Findings:
        """Choose a threshold as `taugate calibrate` does without a gate."""
        units = SamplingUnits.from_clusters(clusters(self.dataset.answerable))
        drawn = DrawnQueries.draw(units, len(self.dataset.documents), settings)
        return study(self.dataset, self.encoded, self.index, drawn, settings, Stopwatch())
