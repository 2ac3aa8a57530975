"""The monitor: all alarms of a release, updated with observations of its traffic."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from taugate.drift.alarm import Alarm, Change, alarms_of
from taugate.drift.block_size import BlockSize
from taugate.drift.blocks import Blocks, Fifth
from taugate.drift.observations import JudgedReplies, Keys, Observations
from taugate.drift.rules import DEFAULT_RULES, Rules
from taugate.drift.signals import Bounds, Signal, quality_signal, query_signals
from taugate.retrieval.release.query_arrays import Reference

_ROWS = 8192  # queries processed at once; the variables of more would take megabytes

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class FifthResult:
    """A fifth of a block, with the alarms that began or ended with it."""

    fifth: Fifth
    changes: list[Change]


class _State(Protocol):
    def pack(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None: ...


class Stream(Generic[Sample]):
    """Signals computed from one stream of queries, or of judgements, in the same blocks, with an alarm for each.

    Attributes:
        columns: For each signal, the slice of its variables in a block's means.
    """

    def __init__(self, signals: list[Signal[Sample]], alarms: list[Alarm], block: int, *, auto: bool = False) -> None:
        self.signals, self.alarms = signals, alarms
        means = [signal.means for signal in signals]
        ends = np.cumsum([len(mean) for mean in means]).tolist()
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
        """Replace the state with one from `pack`.

        Raises:
            ValueError: If `packed` is not a state of these signals.
        """
        if {*packed} != {*self.pack()} or (self._auto is None and packed["blocks.size"].tolist() != [self.blocks.size]):
            raise ValueError("not the state of these signals")
        for name, part in self._parts().items():
            prefix = f"{name}."
            part.restore({key.removeprefix(prefix): packed[key] for key in packed if key.startswith(prefix)})


class Monitor:
    """The alarms of one release.

    Attributes:
        threshold: Natural logarithm of the evidence that raises an alarm.
        queries: Signals and alarms of queries.
        feedback: Signal and alarm of judged replies.
    """

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
        self.threshold = quality_alarm.threshold  # the same for all alarms
        self.queries = Stream(signals, query_alarms, rules.smallest_block, auto=rules.block == "auto")
        self.feedback = Stream([quality], [quality_alarm], rules.judged_block)

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

        Raises:
            ValueError: If `packed` is not a state of this monitor, which must then be restored again before it is used.
        """
        try:
            arrays = load(packed)
        except (SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the state of a monitor") from error
        if not all(name.startswith(("queries.", "feedback.")) for name in arrays):
            raise ValueError("not the state of a monitor")
        for prefix, stream in (("queries.", self.queries), ("feedback.", self.feedback)):
            stream.restore({name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)})
