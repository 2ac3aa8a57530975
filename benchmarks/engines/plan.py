"""Settings of one run of the engine benchmarks."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EnginePlan:
    """Settings of one run.

    Attributes:
        data: Folder of the data sets.
        sets: Names of the data sets to measure.
        server: Description of the engine at TAUGATE_ENGINE_URL.
        queries: Number of queries of each set, 0 for all.
        small: Number of documents of the smaller corpus whose calibration is measured.
        large: Number of documents of the larger one.
    """

    data: Path
    sets: tuple[str, ...]
    server: str
    queries: int
    small: int
    large: int
