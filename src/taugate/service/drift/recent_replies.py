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

from taugate.service.pipeline.record import Results, shown_results
from taugate.service.runtime.resources import allocate_file
from taugate.storage.locks import EXCLUSIVE, acquire, is_at

RING_BYTES = 8 << 20  # some 110,000 replies of five results: 30 a second for the hour that they can be judged
_ID = struct.Struct("<QQ")  # halves of a reply's id
_JUDGED_IRRELEVANT, _JUDGED_RELEVANT = 1, 2  # bits of the judgement flags
_LOCK_SECONDS = 1.0  # others keep it for some microseconds


def is_id(query_id: str) -> bool:
    """Return whether a string has the form of a reply's id."""
    return re.fullmatch(r"[0-9a-f]{32}", query_id, re.ASCII) is not None


class Mark(NamedTuple):
    """Whether a judgement is new, and whether it counts, as the first that judges a result of its reply relevant."""

    new: bool
    counts: bool


REPEATED = Mark(new=False, counts=False)


# Head of a slot: time of the reply; second half of its id; number of its results in this slot; whether one of them was
# judged relevant.
_HEAD = np.dtype([("at", "<f8"), ("id", "<u8"), ("number", "<u2"), ("relevant", "u1"), ("unused", "V5")])


class ReplyRing:
    """A ring buffer of replies in the order in which they were sent, the oldest overwritten first.

    A slot is valid while it has the first half of an id, which is written last and removed first (0), so that a
    half-written slot is never read. A reply with more results than a slot can hold takes several slots.
    """

    def __init__(self, memory: mmap.mmap, results: int) -> None:
        """Use memory that was all zeros at first, with room for so many results per slot."""
        columns = [("position", "<i4", (results,)), ("score", "<f4", (results,)), ("judged", "u1", (results,))]
        slot_type = np.dtype([("head", _HEAD), *columns])
        self._results = results
        self.slots = len(memory) // (8 + slot_type.itemsize)
        self._ids = np.frombuffer(memory, dtype="<u8", count=self.slots)
        slots = np.frombuffer(memory, dtype=slot_type, count=self.slots, offset=self._ids.nbytes)
        self._heads, self._positions, self._scores = slots["head"], slots["position"], slots["score"]
        self._judged = slots["judged"]  # judgement flags
        self._next = 0

    def resume(self) -> None:
        """Continue after the last reply of the worker that wrote to this memory before."""
        latest = self.slots - 1 - int(self._heads["at"][::-1].argmax())  # the last slot of a reply with several
        self._next = (latest + 1) % self.slots if self._ids.any() else 0

    def add(self, query_id: bytes, at: float, results: Results) -> None:
        """Write a reply; see RecentReplies.add. `query_id` has 16 bytes, and `at` is in seconds."""
        first, second = _ID.unpack(query_id)
        for start in range(0, max(1, len(results)), self._results):
            part = results[start : start + self._results]
            number = len(part)
            slot, self._next = self._next, (self._next + 1) % self.slots
            self._ids[slot] = 0
            self._heads[slot] = (at, second, number, 0, b"")
            self._positions[slot, :number], self._scores[slot, :number] = part["position"], part["score"]
            self._judged[slot] = 0
            self._ids[slot] = first

    def find(self, query_id: bytes, since: float) -> list[int]:
        """Return the slots of a reply sent at `since` or later, empty if it is not here."""
        first, second = _ID.unpack(query_id)
        slots = np.flatnonzero(self._ids == first) if first else np.zeros(0, dtype=np.int64)
        heads = self._heads[slots]
        of_reply: list[int] = slots[(heads["id"] == second) & (heads["at"] >= since)].tolist()
        return of_reply

    def read(self, slots: Sequence[int]) -> Results:
        """Return what a reply showed, (n,) SHOWN, from its slots, at least one."""
        return np.concatenate([self._shown(slot) for slot in slots])

    def mark(self, slots: Sequence[int], position: int, *, relevant: bool) -> Mark:
        """Record a judgement of a document that the reply in these slots showed, by its position."""
        judged, any_relevant = self._judged, self._heads["relevant"]
        places = [(slot, row) for slot in slots for row in np.flatnonzero(self._shown(slot)["position"] == position)]
        bit = _JUDGED_RELEVANT if relevant else _JUDGED_IRRELEVANT
        if not places or judged[places[0]] & bit:
            return REPEATED
        judged[places[0]] |= bit
        counts = relevant and not any_relevant[slots[0]]
        if relevant:
            any_relevant[slots[0]] = 1
        return Mark(new=True, counts=counts)

    def _shown(self, slot: int) -> Results:
        """Return the results in a slot, (n,) SHOWN."""
        number = min(int(self._heads["number"][slot]), self._results)
        return shown_results(self._positions[slot, :number], self._scores[slot, :number])


class RecentReplies:
    """The recent replies of one release, by all workers of a service. Times are those of time.monotonic()."""

    def __init__(self, folder: Path | None, release: str, results: int, seconds: float) -> None:
        """Open this worker's ring of a release's replies, which can be judged for so many seconds.

        `folder` has the rings of all workers, None for a single process; `results` is the number of a usual reply.
        """
        self._folder, self._pattern, self._results, self._seconds = folder, f"shown-{release}-%s", results, seconds
        self._lock = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._ring = ReplyRing(self._open_memory(), results)
        self._ring.resume()

    def add(self, query_id: str, at: float, results: Results) -> None:
        """Remember what a reply showed, (n,) RESULT or SHOWN; its id has 32 hexadecimal digits."""
        self._ring.add(bytes.fromhex(query_id), at, results)

    def find(self, query_id: str, now: float) -> Results | None:
        """Return what a reply of any worker showed, (n,) SHOWN, None if it is unknown or too old at `now`."""
        ring, slots = next(self._find_slots(query_id, now), (None, []))
        return None if ring is None else ring.read(slots)

    def mark(self, query_id: str, position: int, now: float, *, relevant: bool) -> Mark:
        """Record a judgement of a document that the reply showed, and return how it relates to earlier ones.

        Returns REPEATED if the reply is unknown, or too old at `now`.
        """
        with self._locked_marks():
            # Two workers that judge one search at the same time both hold it, so both rings are marked.
            marks = [ring.mark(slots, position, relevant=relevant) for ring, slots in self._find_slots(query_id, now)]
        if not marks:
            return REPEATED
        return Mark(new=all(mark.new for mark in marks), counts=all(mark.counts for mark in marks))

    def close(self, *, forget: bool) -> None:
        """Leave the ring to the next worker, or `forget` it, because the release has left."""
        if self._file is not None:
            descriptor, path = self._file
            if forget:
                path.unlink(missing_ok=True)
            os.close(descriptor)
            self._file = None

    def _find_slots(self, query_id: str, now: float) -> Iterator[tuple[ReplyRing, list[int]]]:
        """Yield each ring that has the reply, with the reply's slots; this worker's ring first."""
        if is_id(query_id):
            for ring in self._rings():
                if slots := ring.find(bytes.fromhex(query_id), now - self._seconds):
                    yield ring, slots

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
