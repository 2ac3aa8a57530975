"""What recent replies showed, so that a judgement of a result finds its similarity."""

from collections import deque
from collections.abc import Mapping

# Of an entry of a dictionary: an id of 32 characters, a bytes object, their places; tests/service/drift/test_parts.py.
_ENTRY_BYTES = 150


class Recent:
    """JSON objects of document ids with similarities, by the id of the reply, those of one moment together.

    most_bytes, seconds: beyond either the oldest moments go. Of one event loop.
    """

    def __init__(self, most_bytes: int, seconds: float) -> None:
        self._most_bytes, self._seconds = most_bytes, seconds
        self._moments: deque[tuple[float, int, Mapping[str, bytes]]] = deque()
        self._bytes = 0

    def add(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Remember the replies of a moment; at: seconds of a clock that is never set, so that none is too old early."""
        size = sum(map(len, replies.values())) + _ENTRY_BYTES * len(replies)
        self._moments.append((at, size, replies))
        self._bytes += size
        while self._moments and (self._bytes > self._most_bytes or self._moments[0][0] < at - self._seconds):
            self._bytes -= self._moments.popleft()[1]

    def find(self, query_id: str, now: float) -> bytes | None:
        """What a reply showed, None where it is not known (any more)."""
        for at, _, replies in reversed(self._moments):
            if at < now - self._seconds:
                return None
            if (shown := replies.get(query_id)) is not None:
                return shown
        return None
