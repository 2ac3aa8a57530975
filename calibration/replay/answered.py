"""A release, and what a query log says that it answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from taugate.calibration.replay.log import QueryLog, read_log
from taugate.drift.monitor import Monitor, Rules, theta_of
from taugate.drift.signals import Bounds
from taugate.registry.catalog import find
from taugate.retrieval.release.layout import REFERENCE
from taugate.retrieval.release.reference import Reference
from taugate.retrieval.release.verify import verify


@dataclass(frozen=True)
class Answered:
    """release: its id; percentile: 0…100, of the calibration's top-K similarities, which gives its θ."""

    release: str
    reference: Reference
    percentile: float
    log: QueryLog

    @classmethod
    def read(cls, releases: Path, release: str | None, logs: Sequence[Path]) -> Self:
        """A release, None for the current one, and its lines of the logs. Raises InputError or ReleaseError."""
        folder = find(releases, release)
        manifest = verify(folder)
        reference = Reference.load(folder / REFERENCE)
        log = read_log(logs, manifest.release_id, reference.top.shape[1])
        return cls(manifest.release_id, reference, manifest.bootstrap.overlap_percentile, log)

    def monitor(self, rules: Rules, ordinary: Mapping[str, Bounds] = MappingProxyType({})) -> Monitor:
        """The alarms of the service that has just started with this release; ordinary: bounds of a baseline."""
        return Monitor(self.reference, theta_of(self.reference, self.percentile), rules, ordinary)
