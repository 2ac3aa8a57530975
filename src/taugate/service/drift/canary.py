"""What drift detection needs of the release in service, and its golden queries, run regularly."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from taugate.errors import EncoderError, EncoderUnavailable, OtherReranker, ReleaseError, TaugateError
from taugate.release.manifest import ReleaseManifest
from taugate.release.queries import Reference
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.golden import differences, is_answered, overall, search

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release
    from taugate.retrieval.retriever import Retriever


_SECONDS = 5.0  # for a second stage to score its known pairs, as at load


class WatchedRelease(Protocol):
    """A release whose traffic is watched: one that is searched, or one that cuts the results of another retriever."""

    @property
    def manifest(self) -> ReleaseManifest:
        """Manifest of the release."""
        ...

    @property
    def reference(self) -> Reference:
        """Scores of the calibration queries, for comparison with live ones."""
        ...

    @property
    def documents(self) -> Documents | None:
        """Documents by position; None if the release has none, so that records name their results."""
        ...

    @property
    def questions(self) -> Sequence[bytes]:
        """Questions of the calibration, as lines of JSON; none if the release has no documents, or no such file."""
        ...


@dataclass(frozen=True)
class CanaryResult:
    """The outcome of running the golden queries.

    Attributes:
        accuracy: Share of the golden queries with a relevant document in their top-K, 0…1.
        difference: Largest difference between a similarity and its record; with an engine, the median
            (`golden.overall`).
        alike: Whether the difference is within the release's tolerance and at most one query, as when two documents
            tie, has lost its relevant document.
    """

    accuracy: float
    difference: float
    alike: bool


class Canary:
    """The golden queries of a release."""

    def __init__(self, release: "Release", retriever: "Retriever") -> None:
        """Prepare the canary; a retriever on one thread disturbs requests least."""
        self._release, self._retriever = release, retriever

    @property
    def accuracy_at_calibration(self) -> float:
        """Accuracy of the golden queries at calibration, 0…1."""
        golden = self._release.golden
        return float(np.mean([not {*query.relevant}.isdisjoint(query.documents) for query in golden]))

    def run(self) -> CanaryResult:
        """Search for the golden queries one after another.

        Raises:
            EncoderUnavailable: If the endpoint of the encoder gives no vectors.
            EngineUnavailable: If the engine does not respond.
        """
        manifest = self._release.manifest
        in_engine = manifest.engine is not None
        hits, distances = list[bool](), list[float]()
        for query in self._release.golden:
            try:
                top = search(self._retriever, [query])
            except EncoderUnavailable:
                raise
            except EncoderError:  # the vectors are not finite
                hits.append(False)
                distances.append(np.inf)
                continue
            hits.append(is_answered(query, self._release.documents.at(top.positions[0])))
            try:
                distance = differences(top, [query], in_engine=in_engine)[0]
                distances.append(float(np.nan_to_num(distance, nan=np.inf)))
            except ReleaseError:
                distances.append(np.inf)
        accuracy = float(np.mean(hits))
        accurate = accuracy >= self.accuracy_at_calibration - 1.5 / len(hits)
        difference = overall(np.array(distances, dtype=np.float32), in_engine=in_engine)
        alike = difference <= manifest.golden_tolerance and accurate and self._second_stage_is_alike()
        return CanaryResult(accuracy, difference, alike)

    def _second_stage_is_alike(self) -> bool:
        """Return whether a second stage gives the known pairs their scores; if not, queries go without it for a while.

        True without a second stage, and if it gives no scores.
        """
        second = self._retriever.second
        if second is None:
            return True
        try:
            second.check(time.monotonic() + _SECONDS)
        except OtherReranker:
            second.pause()
            return False
        except TaugateError:  # it is not available, which says nothing about its scores; another alert tells of it
            second.pause()
        return True
