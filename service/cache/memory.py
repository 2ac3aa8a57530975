"""The cache of one process: least recently used goes first, bounded by bytes."""

from typing import Protocol

from cachetools import LRUCache

# Of a key, and of the tables that hold it and its value: 450 to 550 measured with tracemalloc in a full cache that lets
# go of entries, on CPython 3.11 (tests/service/cache/test_memory.py).
_ENTRY_BYTES = 512


class Value(Protocol):
    """What is kept: a reply, or a vector that has its numbers to itself."""

    @property
    def nbytes(self) -> int:
        """What it takes of memory."""
        ...


class Memory:
    """At most so many bytes; 0 keeps nothing. Of one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._entries: LRUCache[str, Value] = LRUCache(most_bytes, getsizeof=_size)

    def get(self, key: str) -> Value | None:
        """The value, which becomes the most recently used."""
        value: Value | None = self._entries.get(key)
        return value

    def put(self, key: str, value: Value) -> None:
        """Keep a value, and let go of what was used longest ago; one that is over the limit by itself is not kept."""
        if _size(value) <= self.most_bytes:
            self._entries[key] = value

    @property
    def bytes(self) -> int:
        """What the entries take."""
        return int(self._entries.currsize)


def _size(value: Value) -> int:
    return value.nbytes + _ENTRY_BYTES
