"""Remembers what recent replies showed, so that a judgement finds its similarity in whichever worker it arrives.

Each worker writes a ring of its own, in memory that all workers of the service map: a file in the folder that goes with
the service. A reply costs a copy of some 100 bytes, without a lock; a judgement, which is rare, reads the rings of all.
A worker that takes the place of one that was killed goes on in its ring, so that there are never more than workers.
"""

import mmap
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.storage.locks import EXCLUSIVE, acquire, is_at

RING_BYTES = 8 << 20  # some 110,000 replies of five results: 30 a second for the hour that they can be judged
_ID = struct.Struct("<Q")  # the first half of a reply's id; 0 is none
# Of a slot: when the reply was sent; the second half of its id; how many of its documents are here; whether one was
# judged relevant.
_HEAD = struct.Struct("<d8sHB5x")
_RELEVANT = 18  # offset of the last of these
_RESULT = 9  # bytes: a position, a similarity, and which judgements of it there are
_JUDGED_IRRELEVANT, _JUDGED_RELEVANT = 1, 2  # bits of the last of these
_MAX_SIMILARITY = 1.01  # a cosine, with what rounding may add
_LOCK_SECONDS = 1.0  # others keep it for some microseconds


def is_id(query_id: str) -> bool:
    """Tell whether a reply can have this id."""
    return re.fullmatch(r"[0-9a-f]{32}", query_id, re.ASCII) is not None


class Mark(NamedTuple):
    """What a judgement is after those before it.

    Attributes:
        new: Nobody has said the same of this result.
        counts: It is the first of the reply that says a result is relevant.
    """

    new: bool
    counts: bool


REPEATED = Mark(new=False, counts=False)


@dataclass(frozen=True)
class ShownResults:
    """The documents that a reply showed: positions, (n,) int32, and similarities with the query, (n,) float32."""

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def read(cls, shown: bytes, documents: int) -> Self:
        """Read the bytes of Reply.shown.

        Args:
            documents: How many the release has.

        Raises:
            ValueError: For anything else.
        """
        half = len(shown) // 2
        positions = np.frombuffer(shown[:half], dtype=np.int32)
        scores = np.frombuffer(shown[half:], dtype=np.float32)
        there = ((positions >= 0) & (positions < documents)).all() and len(np.unique(positions)) == len(positions)
        if not there or not (np.abs(scores) <= _MAX_SIMILARITY).all():  # nor is it, where one is not a number
            raise ValueError("no documents that a reply could show")
        return cls(positions, scores)


class ReplyRing:
    """A ring buffer of replies in the order in which they were sent, the oldest overwritten first.

    A slot is valid while its id is there, which is written last and removed first, so that half a slot is none. A reply
    of more results than a slot has room for takes several. slots: how many there are.
    """

    def __init__(self, memory: mmap.mmap, results: int) -> None:
        """memory: of the ring, all zeros at first; results: that a slot has room for."""
        self._memory, self._results = memory, results
        self._slot_bytes = _HEAD.size + _RESULT * results
        self.slots = len(memory) // (_ID.size + self._slot_bytes)
        self._ids = np.frombuffer(memory, dtype="<u8", count=self.slots)
        self._first = _ID.size * self.slots
        self._next = 0

    def resume(self) -> None:
        """Write next where the worker that wrote to this memory before would have."""
        whole = np.frombuffer(self._memory, dtype=np.uint8, count=self.slots * self._slot_bytes, offset=self._first)
        sent = np.ascontiguousarray(whole.reshape(self.slots, -1)[:, :8]).view("<f8")[:, 0]
        latest = self.slots - 1 - int(sent[::-1].argmax())  # the last one, of a reply in several parts
        self._next = (latest + 1) % self.slots if self._ids.any() else 0

    def add(self, query_id: bytes, at: float, shown: bytes) -> None:
        """Write a reply; for the arguments see RecentReplies.add, query_id as 16 bytes."""
        number = len(shown) // 8
        for start in range(0, number or 1, self._results):
            stop = min(start + self._results, number)
            slot, self._next = self._next, (self._next + 1) % self.slots
            place = self._first + slot * self._slot_bytes
            _ID.pack_into(self._memory, _ID.size * slot, 0)
            _HEAD.pack_into(self._memory, place, at, query_id[8:], stop - start, 0)
            place += _HEAD.size
            content = shown[4 * start : 4 * stop] + shown[4 * (number + start) : 4 * (number + stop)]
            content += bytes(stop - start)
            self._memory[place : place + len(content)] = content
            self._memory[_ID.size * slot : _ID.size * (slot + 1)] = query_id[:8]

    def places(self, query_id: bytes, since: float) -> list[int]:
        """Return the offsets of a reply's slots, none where it is not here.

        Args:
            since: Sent at that time or later.
        """
        (half,) = _ID.unpack(query_id[:8])
        slots = np.flatnonzero(self._ids == half).tolist() if half else []
        places = [self._first + slot * self._slot_bytes for slot in slots]
        heads = [_HEAD.unpack_from(self._memory, place) for place in places]
        return [
            place for place, (at, rest, *_) in zip(places, heads, strict=True) if rest == query_id[8:] and at >= since
        ]

    def read(self, places: Sequence[int]) -> ShownResults:
        """Return what a reply showed.

        Args:
            places: Of its slots, one at least.
        """
        parts = [self._part(place) for place in places]
        return ShownResults(
            np.concatenate([part.positions for part in parts]), np.concatenate([part.scores for part in parts])
        )

    def mark(self, places: Sequence[int], position: int, *, relevant: bool) -> Mark:
        """Record a judgement, and tell what it is after those before it.

        Args:
            places: Of the reply's slots.
            position: Of the document, which the reply showed.
        """
        flags = [self._flag(place, index) for place in places for index in self._indices(place, position)]
        bit = _JUDGED_RELEVANT if relevant else _JUDGED_IRRELEVANT
        if not flags or self._memory[flags[0]] & bit:
            return REPEATED
        self._memory[flags[0]] |= bit
        whole = places[0] + _RELEVANT
        counts = relevant and not self._memory[whole]
        if relevant:
            self._memory[whole] = 1
        return Mark(new=True, counts=counts)

    def _part(self, place: int) -> ShownResults:
        number = self._number(place)
        first, second = place + _HEAD.size, place + _HEAD.size + 4 * number
        return ShownResults(
            np.frombuffer(self._memory[first:second], dtype=np.int32),
            np.frombuffer(self._memory[second : second + 4 * number], dtype=np.float32),
        )

    def _number(self, place: int) -> int:
        return int(min(_HEAD.unpack_from(self._memory, place)[2], self._results))

    def _indices(self, place: int, position: int) -> list[int]:
        return np.flatnonzero(self._part(place).positions == position).tolist()

    def _flag(self, place: int, index: int) -> int:
        return place + _HEAD.size + 8 * self._number(place) + index


class RecentReplies:
    """The recent replies of one release, by all workers of a service. Times are of time.monotonic()."""

    def __init__(self, folder: Path | None, release: str, results: int, seconds: float) -> None:
        """folder: where all workers of the service have their rings, None for a process that answers alone.

        release: its id; results: of a usual reply; seconds: how long a reply can be judged.
        """
        self._folder, self._pattern, self._results, self._seconds = folder, f"shown-{release}-%s", results, seconds
        self._lock = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._own = ReplyRing(self._open_memory(), results)
        self._own.resume()

    def add(self, query_id: str, at: float, shown: bytes) -> None:
        """Remember a reply.

        Args:
            query_id: 32 hexadecimal digits.
            at: When it is sent, in seconds.
            shown: See Reply.
        """
        self._own.add(bytes.fromhex(query_id), at, shown)

    def find(self, query_id: str, now: float) -> ShownResults | None:
        """Return what a reply of any worker showed, None where it is not known, or too old at `now`."""
        found = next(self._find_places(query_id, now), None)
        return None if found is None else found[0].read(found[1])

    def mark(self, query_id: str, position: int, now: float, *, relevant: bool) -> Mark:
        """Record a judgement, and tell what it is after those that any worker was told before.

        Args:
            position: Of a document that the reply showed. REPEATED for a reply that is not known, or too old at `now`.
        """
        with self._locked_marks():
            # Two workers that are told of one search at once both have it. Each place is marked, whichever comes first.
            marks = [
                ring.mark(places, position, relevant=relevant) for ring, places in self._find_places(query_id, now)
            ]
        if not marks:
            return REPEATED
        return Mark(new=all(mark.new for mark in marks), counts=all(mark.counts for mark in marks))

    def close(self, *, forget: bool) -> None:
        """Leave the ring to the next worker.

        Args:
            forget: Remove it, as the release has left.
        """
        if self._file is not None:
            descriptor, path = self._file
            if forget:
                path.unlink(missing_ok=True)
            os.close(descriptor)
            self._file = None

    def _find_places(self, query_id: str, now: float) -> Iterator[tuple[ReplyRing, list[int]]]:
        """Yield each ring that has the reply, with the places of its slots; this worker's ring first."""
        if is_id(query_id):
            for ring in self._rings():
                if places := ring.places(bytes.fromhex(query_id), now - self._seconds):
                    yield ring, places

    def _rings(self) -> Iterator[ReplyRing]:
        """Yield the ring of this worker, then those of the others."""
        yield self._own
        if self._folder is None or self._file is None:
            return
        for path in self._folder.glob(f"{self._pattern % '*'}.ring"):
            with suppress(OSError, ValueError):  # it goes this moment, or has no room yet
                if path != self._file[1]:
                    with path.open("r+b") as file:
                        yield ReplyRing(mmap.mmap(file.fileno(), RING_BYTES), self._results)

    def _open_memory(self) -> mmap.mmap:
        """Map the first ring that no other worker writes; memory of this process where there is no room for a file."""
        if self._folder is not None:
            with suppress(OSError):
                return self._map_file(self._folder)
        return mmap.mmap(-1, RING_BYTES)

    def _map_file(self, folder: Path) -> mmap.mmap:
        for number in count():
            path = folder / f"{self._pattern % number}.ring"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if acquire(descriptor, EXCLUSIVE) and is_at(descriptor, path):
                    # All of its room: a hole that the disk has no room for would end the process that writes to it.
                    os.posix_fallocate(descriptor, 0, RING_BYTES)
                    memory = mmap.mmap(descriptor, RING_BYTES)
                    self._file = descriptor, path
                    return memory
            except OSError:
                path.unlink()
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise AssertionError("numbers do not end")

    @contextmanager
    def _locked_marks(self) -> Iterator[None]:
        """Keep other threads and workers from reading and changing judgements meanwhile."""
        with self._lock:
            if self._folder is None or self._file is None:
                yield
                return
            descriptor = os.open(self._folder / "judged.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                with suppress(OSError):  # a file system without locks
                    acquire(descriptor, EXCLUSIVE, _LOCK_SECONDS)
                yield
            finally:
                os.close(descriptor)
