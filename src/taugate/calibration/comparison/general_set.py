"""Forgetting: measures an adapted encoder on everyday questions outside its domain.

Thresholds paper §4.1 and Table 4: encoders that were adapted to a domain lose accuracy on a general data set.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from taugate.calibration.acceptance.baseline import RankingOutcomes, SearchTrial
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits, clusters
from taugate.calibration.risk.paired import paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.ingestion.dataset.beir import LabelledQuery, read_dataset
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.measures import ForgettingRecord, PairedChange
from taugate.retrieval.vectors.similarity import Float32

_FOLDER = Path(__file__).with_name("general")


@dataclass(frozen=True)
class GeneralSet:
    """The general set that comes with Taugate (calibration/comparison/general/README.md).

    Attributes:
        passages: Texts of the documents.
        queries: Queries with the passages that answer them.
    """

    passages: Sequence[str]
    queries: Sequence[LabelledQuery]

    @classmethod
    def read(cls, folder: Path = _FOLDER) -> Self:
        """Read the set from a folder in the BEIR layout, without chunks."""
        with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
            dataset = read_dataset(folder, "test", Path(spool))
            return cls([document.encoded_text for document in dataset.documents], dataset.answerable)

    def judge(self, passages: Float32, questions: Float32) -> RankingOutcomes:
        """Search each question, and return accuracy@1 and NDCG@10.

        Args:
            passages: (N, d) float32, in the order of the set.
            questions: (q, d) float32 by the same encoder, in the order of the set.
        """
        return SearchTrial.build(self.queries, questions, passages, 1).outcomes()

    def compare(self, before: RankingOutcomes, after: RankingOutcomes) -> ForgettingRecord:
        """Compare two encoders from their results of `judge`."""
        units = SamplingUnits.from_clusters(clusters(self.queries))
        return ForgettingRecord(
            questions=len(self.queries),
            accuracy=_change(before.accuracy, after.accuracy, units),
            ndcg=_change(before.ndcg, after.ndcg, units),
        )


@cache
def general_set() -> GeneralSet:
    """Return the general set that comes with Taugate, read once."""
    return GeneralSet.read()


def _change(before: PerQuery, after: PerQuery, units: SamplingUnits) -> PairedChange:
    losses = paired_losses(before - after, units)
    lower, upper = losses.lower_limit(CONFIDENCE), losses.upper_limit(CONFIDENCE)
    return PairedChange(
        before=float(before.mean()),
        after=float(after.mean()),
        change=Interval(mean=0.0 - losses.mean, lower=-upper, upper=-lower),
    )


def forgetting_words(record: ForgettingRecord, *, unmerged: bool) -> str:
    """State in one line how general questions changed, and what helps if they are worse.

    Args:
        record: Record of the change.
        unmerged: Whether the encoder has trained weights that could be merged with the base's.
    """
    change = record.ndcg.change
    change_line = (
        f"NDCG@10 {_points(change.mean)} points ({_points(change.lower)} to {_points(change.upper)}), accuracy@1 "
        f"{_points(record.accuracy.change.mean)}, on {record.questions} everyday questions"
    )
    if not record.lost:
        return change_line
    if unmerged:
        return f"{change_line}; if the encoder has to answer such questions too, try --recipe merge, or keep its base"
    return f"{change_line}; if the encoder has to answer such questions too, keep its base"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # never -0.0
