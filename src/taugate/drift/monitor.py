"""The monitor: all alarms of a release, and the baseline, the ordinary range of a service's traffic.

The baseline: the ordinary range of a service's traffic, by day and by night, on weekdays and on Sundays. It is learnt
from the means of blocks over days of a query log. These also vary by chance and by bursts, which differ between
neighbouring blocks, while lasting swings are common to neighbours. So the range is that of the block means, drawn
towards their average by the square root of the share of their variance that is not between neighbours.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from taugate.drift.alarm import Alarm, Change, alarms_of
from taugate.drift.blocks import Blocks, BlockSize, Fifth
from taugate.drift.observations import JudgedReplies, Keys, Observations
from taugate.drift.signals import DEFAULT_RULES, Bounds, Rules, Signal, quality_signal, query_signals
from taugate.errors import InputError
from taugate.policy.arrays import Float64
from taugate.release.layout import STAGING_PREFIX
from taugate.release.queries import Reference
from taugate.storage.files import atomic_write, read_bounded
from taugate.storage.folders import staging_folder

_ROWS = 8192  # queries processed at once; the variables of more would take megabytes

Sample = TypeVar("Sample")

# A week includes a weekend; without one the first Sunday could raise an alarm.
MIN_DAYS = 7
MIN_BLOCKS = 20  # fewer blocks have too few neighbours to compare
_MEDIAN_OF_A_SQUARE = NormalDist().inv_cdf(0.75) ** 2  # of a standard normal variable
_MAX_BYTES = 1 << 20  # a hundred times the size of any baseline

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class FifthResult:
    """A fifth of a block, with the alarms that began or ended with it."""

    fifth: Fifth
    changes: list[Change]


class _State(Protocol):
    def pack(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None: ...


class Stream(Generic[Sample]):
    """Signals computed from one stream of queries, or of judgements, in the same blocks, with an alarm for each."""

    def __init__(self, signals: list[Signal[Sample]], alarms: list[Alarm], block: int, *, auto: bool = False) -> None:
        self.signals, self.alarms = signals, alarms
        means = [signal.means for signal in signals]
        ends = np.cumsum([len(mean) for mean in means]).tolist()
        # For each signal, the slice of its variables in a block's means.
        self.columns = [slice(end - len(mean), end) for end, mean in zip(ends, means, strict=True)]
        self._auto = BlockSize(ends[-1]) if auto else None
        self.blocks = Blocks(np.concatenate(means), block)

    def process(self, keys: Keys, observed: Sample, first_row: int = 0) -> Iterator[FifthResult]:
        """Add n observations with their keys, (n,) uint64; yields every fifth of a block that they complete.

        `first_row` is the row of the first of them in the batch.
        """
        values = np.concatenate([signal.variables(observed) for signal in self.signals], axis=1)
        for fifth in self.blocks.feed(keys, values, first_row):
            changes = [
                Change(alarm.signal, fifth.row, alarm.on)
                for alarm, columns in zip(self.alarms, self.columns, strict=True)
                if alarm.update(fifth, columns)
            ]
            if self._auto is not None:
                self._auto.observe(fifth.mean, fifth.queries)
                if fifth.block is not None:
                    self.blocks.size = self._auto.size
            yield FifthResult(fifth, changes)

    def _parts(self) -> dict[str, _State]:
        parts: dict[str, _State] = {"blocks": self.blocks, **{alarm.signal: alarm for alarm in self.alarms}}
        return parts if self._auto is None else parts | {"auto": self._auto}

    def pack(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays; `restore` reads it."""
        return {f"{name}.{key}": array for name, part in self._parts().items() for key, array in part.pack().items()}

    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Replace the state with one from `pack`; raises ValueError if `packed` is not a state of these signals."""
        if {*packed} != {*self.pack()} or (self._auto is None and packed["blocks.size"].tolist() != [self.blocks.size]):
            raise ValueError("not the state of these signals")
        for name, part in self._parts().items():
            prefix = f"{name}."
            part.restore({key.removeprefix(prefix): packed[key] for key in packed if key.startswith(prefix)})


class Monitor:
    """The alarms of one release."""

    def __init__(
        self,
        reference: Reference,
        theta: float,
        rules: Rules = DEFAULT_RULES,
        ordinary: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> None:
        """Start without evidence.

        `theta` is θ of the calibration, see `theta_of`, and `ordinary` as in `alarms_of`.
        """
        self._rules, self._reference, self._theta = rules, reference, theta
        signals, quality = query_signals(reference, theta), quality_signal(reference)
        *query_alarms, quality_alarm = alarms_of([*signals, quality], rules, ordinary)
        # Natural logarithm of the evidence that raises an alarm.
        self.threshold = quality_alarm.threshold  # the same for all alarms
        # Signals and alarms of queries.
        self.queries = Stream(signals, query_alarms, rules.smallest_block, auto=rules.block == "auto")
        self.feedback = Stream([quality], [quality_alarm], rules.judged_block)  # signal and alarm of judged replies

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms of all signals."""
        return [*self.queries.alarms, *self.feedback.alarms]

    def update(self, queries: Observations) -> list[Change]:
        """Add queries in their order; returns the alarms that they begin or end."""
        return [change for result in self.process(queries) for change in result.changes]

    def process(self, queries: Observations) -> Iterator[FifthResult]:
        """Add queries in their order; yields every fifth of a block that they complete."""
        for start in range(0, len(queries), _ROWS):
            part = queries.take(slice(start, start + _ROWS))
            yield from self.queries.process(part.key, part, start)

    def judge(self, judged: JudgedReplies) -> list[Change]:
        """Add judged replies in their order; returns the alarms that they begin or end."""
        return [change for result in self.process_judgements(judged) for change in result.changes]

    def process_judgements(self, judged: JudgedReplies) -> Iterator[FifthResult]:
        """Add judged replies in their order; yields every fifth of a block that they complete."""
        return self.feedback.process(judged.key, judged)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal for monitors of the same release, rules and baseline: they can share a state."""
        digest = hashlib.sha256(repr((self.threshold, self._rules.block)).encode())
        for alarm in self.alarms:
            digest.update(np.concatenate(alarm.bounds).tobytes())
        digest.update(self._reference.top.tobytes() + self._reference.random.tobytes() + repr(self._theta).encode())
        return digest.hexdigest()[:16]

    def pack(self) -> bytes:
        """Return the state, to share with other processes or to restore after a restart: about 70 kB."""
        arrays = {f"queries.{name}": array for name, array in self.queries.pack().items()}
        arrays |= {f"feedback.{name}": array for name, array in self.feedback.pack().items()}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})

    def restore(self, packed: bytes) -> None:
        """Replace the state with one from `pack`.

        Raises ValueError if `packed` is not a state of this monitor, which must then be restored again before it is
        used.
        """
        try:
            arrays = load(packed)
        except (SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the state of a monitor") from error
        if not all(name.startswith(("queries.", "feedback.")) for name in arrays):
            raise ValueError("not the state of a monitor")
        for prefix, stream in (("queries.", self.queries), ("feedback.", self.feedback)):
            stream.restore({name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)})


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

        Raises InputError if the log has too few days or too few blocks.
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

        Raises OSError if the file cannot be written. An earlier file is then unchanged.
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

    Raises InputError if the file cannot be read, is damaged, or does not fit.
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
