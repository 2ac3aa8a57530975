"""How long the head of a request is: before all of it is there, and when it is."""

from collections.abc import Sequence

_MOST_HEADERS = 100  # Apache's default


class Head:
    """Of the request that is being received; limit: bytes. Counting parts costs less than adding up every header.

    A part may hold the end of another request before the head, which is none of it: what came since the head began is
    the most that it can have, less the first part the least.
    """

    def __init__(self, limit: int) -> None:
        self.open = False
        self._limit = limit
        self._came, self._first, self._part = 0, 0, 0
        self._alone = False

    def part(self, length: int, *, alone: bool) -> None:
        """A part of so many bytes is about to be parsed; alone: no request is in it before the one that begins."""
        self._part, self._alone = length, alone
        if self.open:
            self._came += length

    def begin(self) -> None:
        """A request begins in this part."""
        self.open = True
        self._came = self._part
        self._first = 0 if self._alone else self._part
        self._alone = False

    def is_endless(self) -> bool:
        """Whether there is more of it than there may be, and still no end."""
        return self.open and self._came - self._first > self._limit

    def end(self, path: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """All of it is there; whether it may be so long. It is measured only where it could be too long."""
        self.open = False
        if len(headers) > _MOST_HEADERS:
            return False
        return self._came <= self._limit or _bytes(path, headers) <= self._limit


def _bytes(path: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    return len(path) + sum(len(name) + len(value) for name, value in headers)
