"""The cache of one process: least recently used goes first, bounded by bytes."""

from cachetools import LRUCache

# Of a key, a value's object and the tables that hold them, per entry, beside the value's own bytes: 450 to 550 measured
# with tracemalloc in a full cache that lets go of entries, on CPython 3.11 (tests/service/cache/test_memory.py).
_ENTRY_BYTES = 512


class Memory:
    """At most so many bytes; 0 keeps nothing. Of one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._entries: LRUCache[str, bytes] = LRUCache(most_bytes, getsizeof=_size)

    def get(self, key: str) -> bytes | None:
        """The value, which becomes the most recently used."""
        value: bytes | None = self._entries.get(key)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keep a value, and let go of what was used longest ago; one that is over the limit by itself is not kept."""
        if _size(value) <= self.most_bytes:
            self._entries[key] = value

    @property
    def bytes(self) -> int:
        """What the entries take."""
        return int(self._entries.currsize)


def _size(value: bytes) -> int:
    return len(value) + _ENTRY_BYTES
