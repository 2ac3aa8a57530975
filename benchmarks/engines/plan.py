"""What a run of the engines' page was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EnginePlan:
    """Where the data sets are, and how much of which is measured.

    data: folder of the data sets. sets: their names. queries: how many queries of each, 0 for all. server: what
    answers at TAUGATE_ENGINE_URL, in words. sizes: documents of the two corpora whose calibrations are compared.
    """

    data: Path
    sets: tuple[str, ...]
    queries: int
    server: str = ""
    sizes: tuple[int, int] = (20_000, 100_000)
