"""A histogram that takes many values at once: one look for a second's traffic instead of one for each similarity."""

from typing import cast

import numpy as np
from prometheus_client import Histogram

from taugate.retrieval.vectors.similarity import Float32


class BulkHistogram(Histogram):
    """As Prometheus has it, with `observe_all` beside `observe`."""

    def observe_all(self, values: Float32) -> None:
        """As if each of the values, of any shape, were observed by itself."""
        bounds = np.array(self._upper_bounds)
        counts = np.bincount(np.searchsorted(bounds, values.ravel(), side="left"), minlength=len(bounds))
        for bucket, count in zip(self._buckets, counts.tolist(), strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(float(values.sum(dtype=np.float64)))

    def clear_all(self) -> None:
        """As if nothing had been observed, whatever the labels."""
        for each in cast("list[Histogram]", list(self._metrics.values())):
            for value in (*each._buckets, each._sum):
                value.set(0)
