"""A release that cuts the results of another retriever: it has no documents, and nothing is searched."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from taugate.retrieval import golden_results
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.gate import Gate
from taugate.retrieval.golden_results import GoldenResults
from taugate.retrieval.index.passages import Fields
from taugate.retrieval.release.layout import GOLDEN
from taugate.retrieval.release.manifest import RunManifest
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.release.signature import TrustedKeys


@dataclass(frozen=True)
class GateRelease:
    """An open release that was calibrated on a run.

    Attributes:
        gate: Cuts the results.
        golden: Golden questions; empty in releases of versions without them.
        resources: What is closed with the release, such as the lock that prevents its removal.
        documents: None, see WatchedRelease.
        questions: None of the calibration are kept.
        fields: The metadata fields that filters of API keys can name: none.
    """

    gate: Gate
    golden: Sequence[GoldenResults] = ()
    resources: ExitStack = field(default_factory=ExitStack)
    documents: None = None
    questions: Sequence[bytes] = ()
    fields: Fields = field(default_factory=Metadata)

    @classmethod
    def load(cls, release: Path, trusted: TrustedKeys | None) -> Self:
        """Verify and open a release; see Gate.load for the parameters and errors."""
        gate = Gate.load(release, trusted)
        return cls(gate, golden_results.read_golden_results(release / GOLDEN) if GOLDEN in gate.manifest.files else ())

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
