"""A release that cuts the results of another retriever: it has no documents, and nothing is searched."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.gate import Gate
from taugate.retrieval.index.passages import Fields
from taugate.retrieval.release.manifest import RunManifest
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.release.signature import TrustedKeys


@dataclass(frozen=True)
class GateRelease:
    """An open release that was calibrated on a run.

    Attributes:
        gate: Cuts the results.
        resources: What is closed with the release, such as the lock that prevents its removal.
        documents: None, see WatchedRelease.
        fields: The metadata fields that filters of API keys can name: none.
    """

    gate: Gate
    resources: ExitStack = field(default_factory=ExitStack)
    documents: None = None
    fields: Fields = field(default_factory=Metadata)

    @classmethod
    def load(cls, release: Path, trusted: TrustedKeys | None) -> Self:
        """Verify and open a release; see Gate.load for the parameters and errors."""
        return cls(Gate.load(release, trusted))

    @property
    def manifest(self) -> RunManifest:
        """Manifest of the release."""
        return self.gate.manifest

    @property
    def reference(self) -> Reference:
        """Scores of the calibration queries, for comparison with live ones."""
        return self.gate.reference

    def close(self) -> None:
        """Allow the release to be removed."""
        self.resources.close()
