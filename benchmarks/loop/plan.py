"""The plan of one run of the loop."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LoopPlan:
    """Data, folders and counts.

    data: the folder with the public data sets; work: an empty folder that is removed afterwards; documents: of each
    version of the collection; labelled: questions of each version that have labels; rate: questions a second; seed: of
    every random choice.
    """

    data: Path
    work: Path
    documents: int
    labelled: int
    rate: float
    seed: int
