"""What several worker processes measured, less what is of releases that have left.

prometheus_client has no way to take a series back there: it is set to zero, and left out here.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

RELEASE_INFO, SIMILARITY = "taugate_release_info", "taugate_similarity"
SHADOW_INFO = "taugate_shadow_release_info"


class SharedCollector(Collector):
    """The metrics in a folder of all workers; of_release: those of the release in service, in this process."""

    def __init__(self, folder: str, of_release: CollectorRegistry) -> None:
        self._shared = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._of_release = of_release

    def collect(self) -> Iterable[Metric]:
        """Every metric, with the buckets of the release in service alone."""
        bounds = {sample.labels["le"] for sample in _samples(self._of_release.collect(), f"{SIMILARITY}_bucket")}
        for metric in self._shared.collect():  # type: ignore[no-untyped-call]
            if metric.name in {RELEASE_INFO, SHADOW_INFO}:
                metric.samples = [sample for sample in metric.samples if sample.value]
            elif metric.name == SIMILARITY and bounds:
                metric.samples = [sample for sample in metric.samples if sample.labels.get("le", "+Inf") in bounds]
            yield metric


def _samples(metrics: Iterable[Metric], name: str) -> Iterable[Sample]:
    return (sample for metric in metrics for sample in metric.samples if sample.name == name)
