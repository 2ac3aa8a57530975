"""The baseline: the ordinary range of a service's traffic, by day and by night, on weekdays and on Sundays.

It is learnt from the means of blocks over days of a query log. These also vary by chance and by bursts, which differ
between neighbouring blocks, while lasting swings are common to neighbours. So the range is that of the block means,
drawn towards their average by the square root of the share of their variance that is not between neighbours.
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

# A week includes a weekend; without one the first Sunday could raise an alarm.
MIN_DAYS = 7
MIN_BLOCKS = 20  # fewer blocks have too few neighbours to compare
_MEDIAN_OF_A_SQUARE = NormalDist().inv_cdf(0.75) ** 2  # of a standard normal variable
_MAX_BYTES = 1 << 20  # a hundred times the size of any baseline

Share = Annotated[float, Field(ge=0, le=1)]


class OrdinaryRange(BaseModel):
    """The ordinary range of one signal's block means: both ends for each variable, in 0…1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lower: list[Share]
    upper: list[Share]


class Baseline(BaseModel):
    """The ordinary range of all signals, as `taugate drift baseline` writes it.

    `first` and `last` are the times of the first and last query, ISO 8601 in UTC, `days` the number of days with
    queries, and `block` the distinct queries in one of the `blocks`.
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
        """Learn the baseline of a release from its query log, with a new monitor that has the settings of the service.

        Raises:
            InputError: If the log has too few days or too few blocks.
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
            name: Bounds(np.array(ordinary.lower, dtype=np.float64), np.array(ordinary.upper, dtype=np.float64))
            for name, ordinary in self.signals.items()
        }

    def save(self, path: Path) -> None:
        """Write the file atomically.

        Raises:
            OSError: If the file cannot be written. An earlier file is then unchanged.
        """
        sealed = _BaselineFile(baseline=self, sha256=self.digest)
        with staging_folder(path.parent, STAGING_PREFIX) as staging:
            atomic_write(path, sealed.model_dump_json(indent=1).encode() + b"\n", folder=staging)

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal, to detect damage."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class _BaselineFile(BaseModel):
    """The file: a baseline and its digest."""

    model_config = ConfigDict(extra="forbid")

    baseline: Baseline
    sha256: str


def load_baseline(path: Path, release: str, monitor: Monitor) -> Baseline:
    """Read a file that `Baseline.save` wrote for a release, with the signals of its monitor.

    Raises:
        InputError: If the file cannot be read, is damaged, or does not fit.
    """
    remedy = "make it again with `taugate drift baseline`"
    try:
        # The operator names the file, which may be a link, as Kubernetes mounts them.
        sealed = _BaselineFile.model_validate_json(read_bounded(path.resolve(), _MAX_BYTES))
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "not a regular file, or too large"
        raise InputError(f"{path}: cannot be read ({reason}); {remedy}") from error
    except ValidationError as error:
        raise InputError(f"{path}: damaged, or not a baseline; {remedy}") from error
    baseline = sealed.baseline
    if sealed.sha256 != baseline.digest:
        raise InputError(f"{path}: damaged, its digest does not match; {remedy}")
    if baseline.release != release:
        raise InputError(f"{path}: belongs to release {baseline.release[:80]!r}, not to {release}; {remedy}")
    if baseline.days < MIN_DAYS:
        raise InputError(f"{path}: covers {baseline.days} days, and a baseline needs {MIN_DAYS}; {remedy}")
    widths = {alarm.signal: len(alarm.bounds.lower) for alarm in monitor.queries.alarms}
    if {*baseline.signals} != {*widths} or any(
        name not in widths
        or not len(ordinary.lower) == len(ordinary.upper) == widths[name]
        or any(low > high for low, high in zip(ordinary.lower, ordinary.upper, strict=True))
        for name, ordinary in baseline.signals.items()
    ):
        raise InputError(f"{path}: its signals are not those of this version; {remedy}")
    return baseline


def _ranges(means: Float64, stream: Stream[Observations]) -> dict[str, OrdinaryRange]:
    """Compute the ordinary ranges from block means, (n, V), in chronological order."""
    average = means.mean(axis=0)
    deviations = means - average
    variance = (deviations**2).mean(axis=0)
    # Variance between neighbours, by the median, which a few large steps, as from night to day, do not move. For rare
    # events, absent from most blocks, it is the variance by chance alone.
    between = np.median(np.diff(means, axis=0) ** 2, axis=0) / (2 * _MEDIAN_OF_A_SQUARE)
    noise = np.maximum(between, average * (1 - average) / stream.blocks.size)
    share = np.clip(1 - np.divide(noise, variance, out=np.ones_like(noise), where=variance > 0), 0, 1)
    lasting = np.clip(average + np.sqrt(share) * deviations, 0, 1)
    lower, upper = lasting.min(axis=0), lasting.max(axis=0)
    return {
        signal.name: OrdinaryRange(lower=lower[columns].tolist(), upper=upper[columns].tolist())
        for signal, columns in zip(stream.signals, stream.columns, strict=True)
    }
