"""What a run of the engines' page was asked for."""

from dataclasses import dataclass
from pathlib import Path

from taugate.retrieval.engines.engine import EngineKind


@dataclass(frozen=True)
class EnginePlan:
    """Where the data sets are, and how much of which is measured.

    Attributes:
        data: Folder of the data sets.
        sets: Their names.
        queries: How many queries of each, 0 for all.
        server: What answers at TAUGATE_ENGINE_URL, in words.
        small: Documents of the two corpora whose calibrations are compared.
        large: Documents of the two corpora whose calibrations are compared.
        kinds: Of the engines that are started, or of the one at `url`, which is empty where they are started.
        milvus_python: Interpreter of the environment that has the package `milvus`.
        service_python: Of one that has what a service needs.
        work: Folder of what is kept for the next run.
        documents: Of the large collection, and of each of its texts, 0 for all.
        characters: Of the large collection, and of each of its texts, 0 for all.
        breadth: Of its searches.
        rounds: In which the services over it take turns.
        seconds: Of each load.
        switches: Of releases under load.
    """

    data: Path
    sets: tuple[str, ...]
    queries: int
    server: str
    small: int
    large: int
    kinds: tuple[EngineKind, ...]
    url: str
    milvus_python: Path
    service_python: Path
    work: Path
    documents: int
    characters: int
    breadth: int
    rounds: int
    seconds: float
    switches: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Documents of the two corpora whose calibrations are compared."""
        return self.small, self.large
