"""What /metrics says of the release in service."""

from unittest.mock import Mock

from prometheus_client import generate_latest

from taugate.release.manifest import Manifest, RunManifest
from taugate.release.state import UpdateRecord
from taugate.service.metrics import Metrics

NAME = "taugate_release_documents_over_certified"


def grown(documents: int, certified: int | None) -> float:
    """The ratio of a release with so many documents, of an update of one with `certified`."""
    update = None if certified is None else Mock(spec=UpdateRecord, documents=certified)
    manifest = Mock(data=Mock(documents=documents), update=update, erasure=None)
    manifest.certified_documents = Manifest.certified_documents.fget(manifest)  # type: ignore[attr-defined]
    return float(Manifest.documents_over_certified.fget(manifest))  # type: ignore[attr-defined]


def test_update_tells_growth_since_calibration() -> None:
    assert grown(596, 149) == 4.0
    assert grown(596, None) == 1.0


def test_growth_of_run_is_absent_from_metrics() -> None:
    metrics = Metrics()
    metrics.release_documents_over_certified.set(2.5)
    assert f"{NAME} 2.5" in generate_latest(metrics.scrape()).decode()
    metrics.release_documents_over_certified.set(RunManifest.documents_over_certified.fget(None))  # type: ignore[attr-defined]
    assert NAME not in generate_latest(metrics.scrape()).decode()
