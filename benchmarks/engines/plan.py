"""What a run of the engines' page was asked for."""

from dataclasses import dataclass
from pathlib import Path

from taugate.retrieval.engines.engine import EngineKind


@dataclass(frozen=True)
class EnginePlan:
    """Where the data sets are, and how much of which is measured.

    data: folder of the data sets. sets: their names. queries: how many queries of each, 0 for all. server: what
    answers at TAUGATE_ENGINE_URL, in words. small, large: documents of the two corpora whose calibrations are compared.

    kinds: of the engines that are started, or of the one at `url`, which is empty where they are started. milvus_python:
    interpreter of the environment that has the package `milvus`. service_python: of one that has what a service needs.
    work: folder of what is kept for the next run. documents, characters: of the large collection, and of each of its
    texts, 0 for all. breadth: of its searches. rounds: in which the services over it take turns. seconds: of each load.
    switches: of releases under load.
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
