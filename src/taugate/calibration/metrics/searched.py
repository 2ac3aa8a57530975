"""Labelled queries with their results, whatever searched for them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits, sampling_clusters
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.recall import DeepFigures
from taugate.ingestion.dataset.labelled_queries import LabelledQueries
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.component_signals import NO_COMPONENTS, Components


@dataclass(frozen=True)
class SearchedQueries(ABC):
    """Labelled queries with their results.

    Attributes:
        dataset: The queries.
        judged: Results of the n answerable queries.
        unanswerable: Results of the u unanswerable queries.
        units: Sampling units of the answerable queries.
    """

    dataset: LabelledQueries
    judged: JudgedQueries
    unanswerable: TopK
    units: SamplingUnits

    @cached_property
    def cluster_ids(self) -> NDArray[np.int64]:
        """Clusters of the answerable queries, then of the unanswerable ones, (n + u,)."""
        return sampling_clusters(self.dataset.answerable + self.dataset.unanswerable, self.units.drawn)

    @property
    @abstractmethod
    def score_name(self) -> str:
        """What results are compared by, for charts and sentences."""

    @property
    def shares(self) -> bool:
        """Whether a share of the best score means something: scores are above 0, and 0 is no similarity."""
        return True

    @property
    def components(self) -> tuple[Components, Components]:
        """Component scores of the results of the answerable and of the unanswerable queries; empty without any."""
        return NO_COMPONENTS, NO_COMPONENTS

    def deep(self, members: NDArray[np.int64]) -> DeepFigures | None:
        """Measure 100 results of the answerable queries at `members`; None if no more than the K results are known."""
        return None

    @abstractmethod
    def document(self, number: int) -> Document:
        """Return the passage with a number, as far as it is known here."""
