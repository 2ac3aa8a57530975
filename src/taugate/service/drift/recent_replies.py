"""Remembers what recent replies showed, so that any worker can look up the similarities of a judged result.

Each worker writes its own ring buffer, in memory that all workers of the service map: a file in the service's folder.
A reply costs a copy of some 100 bytes, without a lock; a judgement, which is rare, reads the rings of all workers.
A worker that replaces a killed one continues in its ring, so that there are never more rings than workers.
"""

import mmap
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taugate.service.pipeline.record import SHOWN, Results, read_shown, shown_bytes
from taugate.service.runtime.resources import allocate_file
from taugate.storage.locks import EXCLUSIVE, acquire, is_at

RING_BYTES = 8 << 20  # some 110,000 replies of five results: 30 a second for the hour that they can be judged
_ID = struct.Struct("<Q")  # the first half of a reply's id; 0 marks an empty slot
# Head of a slot: time of the reply; second half of its id; number of its documents in this slot; whether one was judged
# relevant.
_HEAD = struct.Struct("<d8sHB5x")
_RELEVANT = 18  # offset of the last field
_RESULT = 9  # bytes: a position, a similarity, and a byte of judgement flags
_JUDGED_IRRELEVANT, _JUDGED_RELEVANT = 1, 2  # bits of the judgement flags
_LOCK_SECONDS = 1.0  # others keep it for some microseconds


def is_id(query_id: str) -> bool:
    """Return whether a string has the form of a reply's id."""
    return re.fullmatch(r"[0-9a-f]{32}", query_id, re.ASCII) is not None


class Mark(NamedTuple):
    """How a judgement relates to earlier ones.

    Attributes:
        new: Whether the same judgement of this result was not made before.
        counts: Whether it is the first of the reply that judges a result relevant.
    """

    new: bool
    counts: bool


REPEATED = Mark(new=False, counts=False)


class ReplyRing:
    """A ring buffer of replies in the order in which they were sent, the oldest overwritten first.

    A slot is valid while it has an id, which is written last and removed first, so that a half-written slot is never
    read. A reply with more results than a slot can hold takes several slots.

    Attributes:
        slots: Number of slots.
    """

    def __init__(self, memory: mmap.mmap, results: int) -> None:
        """Use memory that was all zeros at first, with room for so many results per slot."""
        self._memory, self._results = memory, results
        self._slot_bytes = _HEAD.size + _RESULT * results
        self.slots = len(memory) // (_ID.size + self._slot_bytes)
        self._ids = np.frombuffer(memory, dtype="<u8", count=self.slots)
        self._first = _ID.size * self.slots
        self._next = 0

    def resume(self) -> None:
        """Continue after the last reply of the worker that wrote to this memory before."""
        heads = np.frombuffer(self._memory, dtype=np.uint8, count=self.slots * self._slot_bytes, offset=self._first)
        sent = np.ascontiguousarray(heads.reshape(self.slots, -1)[:, :8]).view("<f8")[:, 0]
        latest = self.slots - 1 - int(sent[::-1].argmax())  # the last slot of a reply with several
        self._next = (latest + 1) % self.slots if self._ids.any() else 0

    def add(self, query_id: bytes, at: float, results: Results) -> None:
        """Write a reply; see RecentReplies.add. `query_id` has 16 bytes."""
        for start in range(0, len(results) or 1, self._results):
            part = results[start : start + self._results]
            slot, self._next = self._next, (self._next + 1) % self.slots
            place = self._first + slot * self._slot_bytes
            _ID.pack_into(self._memory, _ID.size * slot, 0)
            content = _HEAD.pack(at, query_id[8:], len(part), 0) + shown_bytes(part) + bytes(len(part))
            self._memory[place : place + len(content)] = content
            self._memory[_ID.size * slot : _ID.size * (slot + 1)] = query_id[:8]

    def places(self, query_id: bytes, since: float) -> list[int]:
        """Return the offsets of the slots of a reply sent at `since` or later, empty if it is not here."""
        (half,) = _ID.unpack(query_id[:8])
        slots = np.flatnonzero(self._ids == half).tolist() if half else []
        places = [self._first + slot * self._slot_bytes for slot in slots]
        heads = [_HEAD.unpack_from(self._memory, place) for place in places]
        return [
            place for place, (at, half, *_) in zip(places, heads, strict=True) if half == query_id[8:] and at >= since
        ]

    def read(self, places: Sequence[int]) -> Results:
        """Return what a reply showed, (n,) SHOWN, from the offsets of its slots, at least one."""
        return np.concatenate([self._part(place) for place in places])

    def mark(self, places: Sequence[int], position: int, *, relevant: bool) -> Mark:
        """Record a judgement, and return how it relates to earlier ones.

        Args:
            places: Offsets of the reply's slots.
            position: Position of a document that the reply showed.
            relevant: Whether the document answers the query.
        """
        flags = [self._flag(place, index) for place in places for index in self._indices(place, position)]
        bit = _JUDGED_RELEVANT if relevant else _JUDGED_IRRELEVANT
        if not flags or self._memory[flags[0]] & bit:
            return REPEATED
        self._memory[flags[0]] |= bit
        reply_flag = places[0] + _RELEVANT
        counts = relevant and not self._memory[reply_flag]
        if relevant:
            self._memory[reply_flag] = 1
        return Mark(new=True, counts=counts)

    def _part(self, place: int) -> Results:
        first = place + _HEAD.size
        return read_shown(self._memory[first : first + SHOWN.itemsize * self._number(place)])

    def _number(self, place: int) -> int:
        return int(min(_HEAD.unpack_from(self._memory, place)[2], self._results))

    def _indices(self, place: int, position: int) -> list[int]:
        return np.flatnonzero(self._part(place)["position"] == position).tolist()

    def _flag(self, place: int, index: int) -> int:
        return place + _HEAD.size + SHOWN.itemsize * self._number(place) + index


class RecentReplies:
    """The recent replies of one release, by all workers of a service. Times are those of time.monotonic()."""

    def __init__(self, folder: Path | None, release: str, results: int, seconds: float) -> None:
        """Open this worker's ring.

        Args:
            folder: Folder of the rings of all workers, None for a single process.
            release: Id of the release.
            results: Results of a usual reply.
            seconds: How long a reply can be judged.
        """
        self._folder, self._pattern, self._results, self._seconds = folder, f"shown-{release}-%s", results, seconds
        self._lock = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._ring = ReplyRing(self._open_memory(), results)
        self._ring.resume()

    def add(self, query_id: str, at: float, results: Results) -> None:
        """Remember a reply.

        Args:
            query_id: 32 hexadecimal digits.
            at: Time in seconds.
            results: What it showed, (n,) RESULT or SHOWN.
        """
        self._ring.add(bytes.fromhex(query_id), at, results)

    def find(self, query_id: str, now: float) -> Results | None:
        """Return what a reply of any worker showed, (n,) SHOWN, None if it is unknown or too old at `now`."""
        ring, places = next(self._find_places(query_id, now), (None, []))
        return None if ring is None else ring.read(places)

    def mark(self, query_id: str, position: int, now: float, *, relevant: bool) -> Mark:
        """Record a judgement of a document that the reply showed, and return how it relates to earlier ones.

        Returns REPEATED if the reply is unknown, or too old at `now`.
        """
        with self._locked_marks():
            # Two workers that judge one search at the same time both hold it, so both rings are marked.
            marks = [
                ring.mark(places, position, relevant=relevant) for ring, places in self._find_places(query_id, now)
            ]
        if not marks:
            return REPEATED
        return Mark(new=all(mark.new for mark in marks), counts=all(mark.counts for mark in marks))

    def close(self, *, forget: bool) -> None:
        """Leave the ring to the next worker.

        Args:
            forget: Delete the ring, because the release has left.
        """
        if self._file is not None:
            descriptor, path = self._file
            if forget:
                path.unlink(missing_ok=True)
            os.close(descriptor)
            self._file = None

    def _find_places(self, query_id: str, now: float) -> Iterator[tuple[ReplyRing, list[int]]]:
        """Yield each ring that has the reply, with the offsets of its slots; this worker's ring first."""
        if is_id(query_id):
            for ring in self._rings():
                if places := ring.places(bytes.fromhex(query_id), now - self._seconds):
                    yield ring, places

    def _rings(self) -> Iterator[ReplyRing]:
        """Yield the ring of this worker, then those of the others."""
        yield self._ring
        if self._folder is None or self._file is None:
            return
        for path in self._folder.glob(f"{self._pattern % '*'}.ring"):
            with suppress(OSError, ValueError):  # it has just been deleted, or is still empty
                if path != self._file[1]:
                    with path.open("r+b") as file:
                        yield ReplyRing(mmap.mmap(file.fileno(), RING_BYTES), self._results)

    def _open_memory(self) -> mmap.mmap:
        """Map the first ring that no other worker writes; without space for a file, memory of this process."""
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
                    # Allocate all of it: with a sparse file on a full disk, a write would kill the process.
                    allocate_file(descriptor, RING_BYTES)
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
        """Prevent other threads and workers from reading and changing judgements."""
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
