"""CPU, memory and files of all worker processes together."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# What cannot be added up: when the service began, and how many files each may open.
_COMBINED = {"process_start_time_seconds": min, "process_max_fds": min}


class WorkersCollector(Collector):
    """The metrics of ProcessCollector, summed over the workers alive; folder: where they keep them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """One value each; memory that workers share, such as the mapped index, is counted once in each of them."""
        found: dict[str, list[Metric]] = {}
        for pid in {path.stem.rpartition("_")[2] for path in self._folder.glob("*.db")}:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():  # nothing of a dead one
                found.setdefault(metric.name, []).append(metric)
        for name, metrics in found.items():
            value = _COMBINED.get(name, sum)([metric.samples[0].value for metric in metrics])
            family = CounterMetricFamily if metrics[0].type == "counter" else GaugeMetricFamily
            yield family(name, metrics[0].documentation, value=value)
