"""Declares Prometheus metrics as attributes of a class; every instance registers its own."""

from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# How prometheus_client combines the gauges of several processes.
MultiprocessMode = Literal["livesum", "livemin", "livemax", "livemostrecent"]
M = TypeVar("M", Counter, Gauge, Histogram)


class Declared(Generic[M]):
    """A declaration; the attribute of an instance is the metric itself, which MetricGroup sets."""

    def __init__(self, make: Callable[[CollectorRegistry], M]) -> None:
        """Make the metric of an instance with `make`, from its registry."""
        self.make: Callable[[CollectorRegistry], M] = make

    def __get__(self, instance: object, owner: type) -> M:
        """Fail, because the attribute of an instance hides the declaration of its class."""
        raise AttributeError("metrics exist after MetricGroup.__init__")


class MetricGroup:
    """Base of classes that declare their metrics.

    Attributes:
        registry: Registry of the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics that the class declares, in its order."""
        self.registry = registry
        for name, declared in vars(type(self)).items():
            if isinstance(declared, Declared):
                setattr(self, name, declared.make(registry))


def counter(name: str, meaning: str, *labels: str, values: Iterable[str] = ()) -> Declared[Counter]:
    """Declare a counter.

    Args:
        name: Its name, without `_total`.
        meaning: Its description.
        labels: Names of its labels.
        values: Values of its only label that start at 0, so that the first count of each is an increase.
    """

    def make(registry: CollectorRegistry) -> Counter:
        made = Counter(name, meaning, labels, registry=registry)
        for value in values:
            made.labels(value)
        return made

    return Declared(make)


def gauge(name: str, meaning: str, *labels: str, mode: MultiprocessMode = "livemostrecent") -> Declared[Gauge]:
    """Declare a gauge, whose values in several processes are combined by `mode`."""
    return Declared(lambda registry: Gauge(name, meaning, labels, registry=registry, multiprocess_mode=mode))


def histogram(name: str, meaning: str, *labels: str, buckets: Iterable[float]) -> Declared[Histogram]:
    """Declare a histogram with the upper bounds of its buckets."""
    bounds = tuple(buckets)
    return Declared(lambda registry: Histogram(name, meaning, labels, buckets=bounds, registry=registry))
