"""The plan of one run of the tables of updates."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UpdatePlan:
    """The data, the folders and the counts of one run.

    Attributes:
        data: The folder with the public data sets.
        work: A folder that is removed afterwards.
        kills: Of updates.
        seed: Of every random choice.
    """

    data: Path
    work: Path
    kills: int
    seed: int
