"""The plan of one run of the loop."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LoopPlan:
    """Data, folders and counts.

    Attributes:
        data: The folder with the public data sets.
        work: An empty folder that is removed afterwards.
        documents: Of each version of the collection.
        labelled: Questions of each version that have labels.
        rate: Questions a second.
        seed: Of every random choice.
    """

    data: Path
    work: Path
    documents: int
    labelled: int
    rate: float
    seed: int
