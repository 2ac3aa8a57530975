"""What drift detection and feedback need of the release in service."""

from collections.abc import Sequence
from typing import Protocol

from taugate.retrieval.documents.store import Documents
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.query_arrays import Reference


class WatchedRelease(Protocol):
    """A release whose traffic is watched: one that is searched, or one that cuts the results of another retriever."""

    @property
    def manifest(self) -> ReleaseManifest:
        """Manifest of the release."""
        ...

    @property
    def reference(self) -> Reference:
        """Scores of the calibration queries, for comparison with live ones."""
        ...

    @property
    def documents(self) -> Documents | None:
        """Documents by position; None if the release has none, so that records name their results."""
        ...

    @property
    def questions(self) -> Sequence[bytes]:
        """Questions of the calibration, as lines of JSON; none if the release has no documents, or no such file."""
        ...
