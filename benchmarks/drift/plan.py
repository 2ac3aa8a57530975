"""The plan of one run of the drift tables."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DriftPlan:
    """The settings of one run of the drift tables.

    queries: of the simulation without drift; runs: of each scenario; seconds, rounds: of each load of a service.
    """

    data: Path
    work: Path
    queries: int
    runs: int
    seconds: float
    rounds: int
    seed: int
