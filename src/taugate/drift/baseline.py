"""The baseline: the ordinary range of a service's traffic, by day and by night, on weekdays and on Sundays.

It is learnt from the means of blocks over days of a query log. These also vary by chance and by bursts, which differ
from one block to the next; what lasts is what neighbours have in common. So the range is that of the block means, drawn
towards their average by the square root of the share of their variance that is not between neighbours.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taugate.drift.monitor import Monitor, Stream
from taugate.drift.observations import Float64, Observations
from taugate.drift.signals import Bounds
from taugate.errors import InputError
from taugate.retrieval.release.layout import STAGING_PREFIX
from taugate.storage.files import atomic_write, read_bounded
from taugate.storage.folders import staging_folder

# A week has a weekend; without it the first Sunday could be an alarm.
MIN_DAYS = 7
MIN_BLOCKS = 20  # of fewer, neighbours say nothing
_MEDIAN_OF_A_SQUARE = NormalDist().inv_cdf(0.75) ** 2  # of a standard normal variable
_BYTES = 1 << 20  # a hundred times as many as any has

Share = Annotated[float, Field(ge=0, le=1)]


class OrdinaryRange(BaseModel):
    """The ordinary range of one signal's block means.

    Attributes:
        lower: Of each variable, in 0…1.
        upper: Of each variable, in 0…1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lower: list[Share]
    upper: list[Share]


class Baseline(BaseModel):
    """The ordinary range of all signals, as `taugate drift baseline` writes it.

    Attributes:
        release: Id of the release whose traffic it is of.
        first: Times of the first and last query, ISO 8601 in UTC.
        last: Times of the first and last query, ISO 8601 in UTC.
        days: With queries.
        queries: How many.
        block: Distinct queries in a block.
        blocks: How many.
        signals: The range of each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    release: str
    first: str
    last: str
    days: int
    queries: int
    block: int
    blocks: int
    signals: dict[str, OrdinaryRange]

    @classmethod
    def learn(cls, release: str, queries: Observations, monitor: Monitor) -> Self:
        """Learn the baseline of a release from its query log.

        Args:
            release: Its id.
            queries: Of the log.
            monitor: At the settings of the service, and with nothing seen yet.

        Raises:
            InputError: Where the log has too few days or too few blocks.
        """
        stream = monitor.queries
        means = [result.fifth.block for result in monitor.process(queries) if result.fifth.block is not None]
        days = len({int(at // 86400) for at in queries.at.tolist()})
        if days < MIN_DAYS or len(means) < MIN_BLOCKS:
            raise InputError(
                f"the log has queries of {days} days (UTC) and {len(means)} blocks of {stream.blocks.size} distinct "
                f"queries; a baseline needs {MIN_DAYS} days and {MIN_BLOCKS} blocks"
            )
        first, last = (datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in queries.at[[0, -1]])
        return cls(
            release=release,
            first=first,
            last=last,
            days=days,
            queries=len(queries),
            block=stream.blocks.size,
            blocks=len(means),
            signals=_ranges(np.array(means), stream),
        )

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """The bounds of each signal's block means, by signal."""
        return {
            name: Bounds(np.array(each.lower, dtype=np.float64), np.array(each.upper, dtype=np.float64))
            for name, each in self.signals.items()
        }

    def save(self, path: Path) -> None:
        """Write the file in one step; what was there before stays whole until then.

        Raises:
            OSError: .
        """
        sealed = _BaselineFile(baseline=self, sha256=self.digest)
        with staging_folder(path.parent, STAGING_PREFIX) as staging:
            atomic_write(path, sealed.model_dump_json(indent=1).encode() + b"\n", folder=staging)

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal, which tells whether a file is as it was written."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class _BaselineFile(BaseModel):
    """The file: a baseline and its digest."""

    model_config = ConfigDict(extra="forbid")

    baseline: Baseline
    sha256: str


def load_baseline(path: Path, release: str, monitor: Monitor) -> Baseline:
    """Read what `Baseline.save` wrote.

    Args:
        path: The file.
        release: Id of the release that it has to be of.
        monitor: Whose signals it has to have.

    Raises:
        InputError: , in one sentence, where it is damaged, or of another release.
    """
    remedy = "make it again with `taugate drift baseline`"
    try:
        # Who runs the service names the file, which may be a link, as Kubernetes mounts them.
        sealed = _BaselineFile.model_validate_json(read_bounded(path.resolve(), _BYTES))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'no plain file of its size'}); {remedy}"
        ) from error
    except ValidationError as error:
        raise InputError(f"{path}: damaged, or no baseline; {remedy}") from error
    found = sealed.baseline
    if sealed.sha256 != found.digest:
        raise InputError(f"{path}: damaged, its digest does not fit; {remedy}")
    if found.release != release:
        raise InputError(f"{path}: belongs to release {found.release[:80]!r}, not to {release}; {remedy}")
    if found.days < MIN_DAYS:
        raise InputError(f"{path}: covers {found.days} days, and a baseline needs {MIN_DAYS}; {remedy}")
    widths = {alarm.signal: len(alarm.bounds.lower) for alarm in monitor.queries.alarms}
    if {*found.signals} != {*widths} or any(
        name not in widths
        or not len(each.lower) == len(each.upper) == widths[name]
        or any(low > high for low, high in zip(each.lower, each.upper, strict=True))
        for name, each in found.signals.items()
    ):
        raise InputError(f"{path}: its signals are not those of this version; {remedy}")
    return found


def _ranges(means: Float64, stream: Stream[Observations]) -> dict[str, OrdinaryRange]:
    """Compute the ordinary ranges from block means, (n, V), in the order of time."""
    average = means.mean(axis=0)
    apart = means - average
    variance = (apart**2).mean(axis=0)
    # Between neighbours, by the median, which a few large steps such as from night to day leave alone; of rare things,
    # which most blocks do not have, what chance alone gives.
    between = np.median(np.diff(means, axis=0) ** 2, axis=0) / (2 * _MEDIAN_OF_A_SQUARE)
    noise = np.maximum(between, average * (1 - average) / stream.blocks.size)
    share = np.clip(1 - np.divide(noise, variance, out=np.ones_like(noise), where=variance > 0), 0, 1)
    lasting = np.clip(average + np.sqrt(share) * apart, 0, 1)
    lower, upper = lasting.min(axis=0), lasting.max(axis=0)
    return {
        signal.name: OrdinaryRange(lower=lower[columns].tolist(), upper=upper[columns].tolist())
        for signal, columns in zip(stream.signals, stream.columns, strict=True)
    }
