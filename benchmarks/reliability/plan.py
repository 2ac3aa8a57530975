"""The plan of one run of the reliability tables."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReliabilityPlan:
    """The durations and counts of one run.

    data: the folder with the public data sets; kept: releases of these, for the next time; work: a folder that is
    removed afterwards; kills: of all commands together; swaps: promotions under load; restarts: of each replica;
    seconds, rounds: of each load; hung_seconds: that Redis does not answer; distinct: queries that never come again; fuzz_seconds: of
    all readers together; corrupted: releases; pairs: of queries whose times are compared; examples: of each operation and phase; seed: of every random choice.
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
