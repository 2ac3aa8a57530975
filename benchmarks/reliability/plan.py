"""What one run of the tables was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """work: a folder for releases, removed afterwards; kills: of all commands together; seed: of every random choice."""

    work: Path
    kills: int
    seed: int
