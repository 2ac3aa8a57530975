"""The plan of one run of the reliability tables."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReliabilityPlan:
    """The durations and counts of one run.

    Attributes:
        data: The folder with the public data sets.
        kept: Releases of these, for the next time.
        work: A folder that is removed afterwards.
        swaps: Promotions under load.
        seconds: Of each load.
        rounds: Of each load.
        hung_seconds: That Redis does not answer.
        distinct: Queries that never come again.
        pairs: Of queries whose times are compared.
        seed: Of every random choice.
    """

    data: Path
    kept: Path
    work: Path
    swaps: int
    seconds: float
    rounds: int
    hung_seconds: float
    distinct: int
    pairs: int
    seed: int
