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
        kills: Of all commands together.
        swaps: Promotions under load.
        restarts: Of each replica.
        seconds: Of each load.
        rounds: Of each load.
        hung_seconds: That Redis does not answer.
        distinct: Queries that never come again.
        fuzz_seconds: Of all readers together.
        corrupted: Releases.
        pairs: Of queries whose times are compared.
        examples: Of each operation and phase.
        seed: Of every random choice.
    """

    data: Path
    kept: Path
    work: Path
    kills: int
    swaps: int
    restarts: int
    seconds: float
    rounds: int
    hung_seconds: float
    distinct: int
    fuzz_seconds: int
    corrupted: int
    pairs: int
    examples: int
    seed: int
