"""Asks golden queries again and again, so that an encoder or index that answers differently shows without traffic."""

from dataclasses import dataclass

import numpy as np

from taugate.errors import EncoderError, ReleaseError
from taugate.retrieval.release.golden import differences, overall, search
from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Retriever


@dataclass(frozen=True)
class CanaryResult:
    """The outcome of asking the golden queries.

    Attributes:
        accuracy: Share of them with a relevant document in their top-K, 0…1.
        difference: Of a similarity from its record, the largest, or the median where an engine searches
            (`golden.overall`).
        alike: Whether that is within the release's tolerance, and at most one query has lost its relevant document, as
            where two documents tie.
    """

    accuracy: float
    difference: float
    alike: bool


class Canary:
    """The golden queries of a release."""

    def __init__(self, release: Release, retriever: Retriever) -> None:
        """release: has the queries and their records; retriever: answers them, best on one thread."""
        self._release, self._retriever = release, retriever

    @property
    def accuracy_at_calibration(self) -> float:
        """The accuracy that the same queries had at calibration, 0…1."""
        golden = self._release.golden
        return float(np.mean([not {*query.relevant}.isdisjoint(query.documents) for query in golden]))

    def ask(self) -> CanaryResult:
        """Ask all of the queries, one after the other."""
        manifest = self._release.manifest
        in_engine = manifest.engine is not None
        hits, distances = list[bool](), list[float]()
        for query in self._release.golden:
            try:
                top = search(self._retriever, [query])
            except EncoderError:  # its vectors are no numbers
                hits.append(False)
                distances.append(np.inf)
                continue
            hits.append(query.is_answered_by(self._release.documents.at(top.positions[0])))
            try:
                found = differences(top, [query], in_engine=in_engine)[0]
                distances.append(float(np.nan_to_num(found, nan=np.inf)))
            except ReleaseError:
                distances.append(np.inf)
        accuracy = float(np.mean(hits))
        found_again = accuracy >= self.accuracy_at_calibration - 1.5 / len(hits)
        difference = overall(np.array(distances, dtype=np.float32), in_engine=in_engine)
        return CanaryResult(accuracy, difference, difference <= manifest.golden_tolerance and found_again)
