"""The plan of one run of the drift tables."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DriftPlan:
    """The settings of one run of the drift tables.

    Attributes:
        queries: Of the simulation without drift.
        runs: Of each scenario.
        seconds: Of each load of a service.
        rounds: Of each load of a service.
    """

    data: Path
    work: Path
    queries: int
    runs: int
    seconds: float
    rounds: int
    seed: int
