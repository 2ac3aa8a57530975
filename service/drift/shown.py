"""What recent replies showed, so that a judgement of a result finds its similarity, in whichever worker it comes in.

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
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.storage.locks import EXCLUSIVE, acquire, is_at

RING_BYTES = 8 << 20  # some 110,000 replies of five results: 30 a second for the hour that they can be judged
_ID = struct.Struct("<Q")  # the first half of a reply's id; 0 is none
# When it was sent; the second half of its id; how many of its documents are here; whether one was judged relevant.
_HEAD = struct.Struct("<d8sHB5x")
_RELEVANT = 18  # where the last of these is
_RESULT = 9  # bytes: a position, a similarity, and whether it was judged irrelevant
_HIGHEST = 1.01  # similarity: a cosine, with what rounding may add
_LOCK_SECONDS = 1.0  # others keep it for some microseconds


def is_id(query_id: str) -> bool:
    """Whether a reply can have this id."""
    return re.fullmatch(r"[0-9a-f]{32}", query_id, re.ASCII) is not None


@dataclass(frozen=True)
class Judgeable:
    """A reply that can be judged. positions, scores: (n,) of the documents that it showed."""

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def read(cls, shown: bytes, documents: int) -> Self:
        """Bytes as in Reply.shown; documents: of the release. Raises ValueError for anything else."""
        half = len(shown) // 2
        positions = np.frombuffer(shown[:half], dtype=np.int32)
        scores = np.frombuffer(shown[half:], dtype=np.float32)
        there = ((positions >= 0) & (positions < documents)).all() and len(np.unique(positions)) == len(positions)
        if not there or not (np.abs(scores) <= _HIGHEST).all():  # nor is it, where one is not a number
            raise ValueError("no documents that a reply could show")
        return cls(positions, scores)


class Ring:
    """Replies in the order in which they were sent; the oldest go first. results: that a slot has room for.

    A slot is valid while its id is there, which is written last and removed first: half a slot is none.
    """

    def __init__(self, memory: mmap.mmap, results: int) -> None:
        self._memory, self._results = memory, results
        self._slot_bytes = _HEAD.size + _RESULT * results
        self.slots = len(memory) // (_ID.size + self._slot_bytes)
        self._ids = np.frombuffer(memory, dtype="<u8", count=self.slots)
        self._first = _ID.size * self.slots
        self._next = 0

    def go_on(self) -> None:
        """Write next where a worker that was killed would have."""
        whole = np.frombuffer(self._memory, dtype=np.uint8, count=self.slots * self._slot_bytes, offset=self._first)
        sent = np.ascontiguousarray(whole.reshape(self.slots, -1)[:, :8]).view("<f8")[:, 0]
        latest = self.slots - 1 - int(sent[::-1].argmax())  # the last one, of a reply in several parts
        self._next = (latest + 1) % self.slots if self._ids.any() else 0

    def add(self, query_id: bytes, at: float, shown: bytes) -> None:
        """A reply is sent; see Shown.add."""
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
        """Where the parts of a reply are, none where it is not known (any more)."""
        (half,) = _ID.unpack(query_id[:8])
        slots = np.flatnonzero(self._ids == half).tolist() if half else []
        places = [self._first + slot * self._slot_bytes for slot in slots]
        heads = [_HEAD.unpack_from(self._memory, place) for place in places]
        return [
            place for place, (at, rest, *_) in zip(places, heads, strict=True) if rest == query_id[8:] and at >= since
        ]

    def read(self, places: Sequence[int]) -> Judgeable:
        """A reply of one part at least."""
        parts = [self._part(place) for place in places]
        return Judgeable(
            np.concatenate([part.positions for part in parts]), np.concatenate([part.scores for part in parts])
        )

    def mark(self, places: Sequence[int], position: int, *, relevant: bool) -> bool:
        """Whether the reply, which showed this, was not judged so before; it is from now on."""
        flags = [self._flag(place, index) for place in places for index in self._indices(place, position)]
        if relevant:
            flags = [places[0] + _RELEVANT]
        if not flags or self._memory[flags[0]]:
            return False
        self._memory[flags[0]] = 1
        return True

    def _part(self, place: int) -> Judgeable:
        number = self._number(place)
        first, second = place + _HEAD.size, place + _HEAD.size + 4 * number
        return Judgeable(
            np.frombuffer(self._memory[first:second], dtype=np.int32),
            np.frombuffer(self._memory[second : second + 4 * number], dtype=np.float32),
        )

    def _number(self, place: int) -> int:
        return int(min(_HEAD.unpack_from(self._memory, place)[2], self._results))

    def _indices(self, place: int, position: int) -> list[int]:
        return np.flatnonzero(self._part(place).positions == position).tolist()

    def _flag(self, place: int, index: int) -> int:
        return place + _HEAD.size + 8 * self._number(place) + index


class Shown:
    """Replies of one release. folder: of all workers of a service, None for a process that answers alone.

    results: of a usual reply; seconds: how long a reply can be judged. Its clock is that of the machine, never set.
    """

    def __init__(self, folder: Path | None, release: str, results: int, seconds: float) -> None:
        self._folder, self._pattern, self._results, self._seconds = folder, f"shown-{release}-%s", results, seconds
        self._lock = threading.Lock()
        self._file: tuple[int, Path] | None = None
        self._own = Ring(self._memory(), results)
        self._own.go_on()

    def add(self, query_id: str, at: float, shown: bytes) -> None:
        """A reply is sent. query_id: 32 hexadecimal digits; at: seconds; shown: see Reply."""
        self._own.add(bytes.fromhex(query_id), at, shown)

    def find(self, query_id: str, now: float) -> Judgeable | None:
        """What a reply of any worker showed, None where it is not known (any more)."""
        found = self._found(query_id, now)
        return None if found is None else found[0].read(found[1])

    def is_first(self, query_id: str, position: int, now: float, *, relevant: bool) -> bool:
        """Whether no worker was told before that this document, which the reply showed, is relevant or not.

        Of several that are relevant, the first counts. False for a reply that is not known any more.
        """
        with self._alone():
            found = self._found(query_id, now)
            return found is not None and found[0].mark(found[1], position, relevant=relevant)

    def close(self, *, forget: bool) -> None:
        """Leave the ring to whoever comes next; forget: the release has left, and its replies cannot be judged."""
        if self._file is not None:
            descriptor, path = self._file
            if forget:
                path.unlink(missing_ok=True)
            os.close(descriptor)
            self._file = None

    def _found(self, query_id: str, now: float) -> tuple[Ring, list[int]] | None:
        if is_id(query_id):
            for ring in self._rings():
                if places := ring.places(bytes.fromhex(query_id), now - self._seconds):
                    return ring, places
        return None

    def _rings(self) -> Iterator[Ring]:
        """That of this worker, then those of the others."""
        yield self._own
        if self._folder is None or self._file is None:
            return
        for path in self._folder.glob(f"{self._pattern % '*'}.ring"):
            with suppress(OSError, ValueError):  # it goes this moment, or has no room yet
                if path != self._file[1]:
                    with path.open("r+b") as file:
                        yield Ring(mmap.mmap(file.fileno(), RING_BYTES), self._results)

    def _memory(self) -> mmap.mmap:
        """Of the first ring that no other worker writes; of this process alone where there is no room for a file."""
        if self._folder is not None:
            with suppress(OSError):
                return self._of_a_file(self._folder)
        return mmap.mmap(-1, RING_BYTES)

    def _of_a_file(self, folder: Path) -> mmap.mmap:
        for number in count():
            path = folder / f"{self._pattern % number}.ring"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if acquire(descriptor, EXCLUSIVE) and is_at(descriptor, path):
                    # All of its room: a hole that the disk has no room for would end the process that writes to it.
                    os.posix_fallocate(descriptor, 0, RING_BYTES)
                    memory = mmap.mmap(descriptor, RING_BYTES)
                    break
            except OSError:
                path.unlink()
                os.close(descriptor)
                raise
            os.close(descriptor)
        self._file = descriptor, path
        return memory

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While others read and change no marks."""
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
