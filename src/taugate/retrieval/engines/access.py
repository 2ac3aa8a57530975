"""How a release reaches its engine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.engine import Collection, Engine, EngineKind
from taugate.retrieval.engines.record import EngineRecord


class MonitoredCollection(Collection, Protocol):
    """A collection whose availability is monitored."""

    def check(self) -> None:
        """Raise EngineUnavailable if the collection is known not to respond; sends no request."""
        ...

    def close(self) -> None:
        """Stop monitoring; a second call does nothing."""
        ...


@dataclass(frozen=True)
class EngineAccess:
    """How a release reaches its engine.

    Attributes:
        connect: Returns the engine of a kind.
        opening: Timeout in seconds for checking the collection.
        seconds: Timeout in seconds of each later request.
        watch: Wraps the checked collection in one that monitors it; None if it is not monitored.
    """

    connect: Callable[[EngineKind], Engine] = engine_from_environment
    opening: float = 120.0
    seconds: float = 30.0
    watch: Callable[[EngineRecord, Collection], MonitoredCollection] | None = None
