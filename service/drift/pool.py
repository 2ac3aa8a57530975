"""Windows of all replicas together, and of this one alone while Redis does not answer."""

from typing import Generic, TypeVar

import numpy as np

from retrieval.drift.observations import Columns
from retrieval.drift.sample import Sample
from service.drift.fleet import Fleet

Seen = TypeVar("Seen", bound=Columns)


class Pool(Generic[Seen]):
    """Samples of a kind. like: no rows of what is sampled, and nothing else is read; seconds: see Window."""

    def __init__(self, fleet: Fleet | None, kind: str, like: Seen, seconds: float) -> None:
        self._fleet, self._kind, self._like, self._seconds = fleet, kind, like, seconds

    def samples(self, own: Sample[Seen] | None, now: float) -> list[Sample[Seen]]:
        """Those of this replica, which may have none, and of the others; now: Unix time."""
        samples = [] if own is None else [own]
        if self._fleet is None:
            return samples
        others = self._fleet.exchange(self._kind, None if own is None else own.pack(), self._seconds)
        for replica, packed in others.items():
            if (sample := self._read(packed, now)) is None:
                self._fleet.forget(self._kind, replica)
            else:
                samples.append(sample)
        return samples

    def _read(self, packed: bytes, now: float) -> Sample[Seen] | None:
        """What is still in the window of a sample; None where that is nothing, or it is no sample."""
        try:
            sample = Sample.unpack(packed, self._like)
        except ValueError:
            return None
        recent = np.flatnonzero(sample.rows.at >= now - self._seconds)
        if not len(recent):
            return None
        return Sample(sample.rows.take(recent), round(sample.count * len(recent) / len(sample.rows)))
