"""The plan of one run of the tables of updates."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UpdatePlan:
    """The data, the folders and the counts of one run.

    data: the folder with the public data sets; work: a folder that is removed afterwards; kills: of updates; seed: of
    every random choice.
    """

    data: Path
    work: Path
    kills: int
    seed: int
