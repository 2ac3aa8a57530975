"""The plan of one run of the serving tables, and the data sets that it prepared."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.serving.load import LoadJob
from benchmarks.serving.prepare import Prepared, prepare
from benchmarks.serving.servers import Server

_WARM_REQUESTS = 200  # of a warm-up that is not measured


@dataclass(frozen=True)
class ServingPlan:
    """The settings of one run of the serving tables.

    Attributes:
        rounds: Of services taking turns.
        seconds: Of each load.
    """

    data: Path
    work: Path
    peers_python: str | None
    rounds: int
    seconds: float
    overload_seconds: float
    seed: int

    def prepared(self, name: str) -> Prepared:
        """Return a data set, prepared when it is first asked for."""
        return _prepared(self.data, name, self.work, self.peers_python, self.seed)

    def closed(self, server: Server, order: list[int], clients: int) -> LoadJob:
        """Build a closed loop for the time of this run."""
        return LoadJob(server.port, order, self.seconds, clients=clients)

    def warm_up(self, server: Server, queries: int, clients: int) -> LoadJob:
        """Build a short closed loop on the queries that come last in the order."""
        return LoadJob(server.port, list(range(queries))[-_WARM_REQUESTS:], min(self.seconds, 2.0), clients=clients)


@lru_cache(maxsize=4)
def _prepared(data: Path, name: str, work: Path, peers_python: str | None, seed: int) -> Prepared:
    return prepare(data, name, work, peers_python, seed)
