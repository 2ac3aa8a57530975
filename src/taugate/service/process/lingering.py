"""Closing a connection in two steps, so that the client can read the whole reply (RFC 9112, section 9.6)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_LINGER_SECONDS = 2.0  # time for a client to read the end of the stream and close its side


class LingeringTransport(asyncio.Transport):
    """A TCP transport whose `close` may linger: it ends its own stream, and waits for the client to end the other.

    Closing a socket while bytes from the client are unread or in transit resets the connection. A reset also discards
    data that the client has not read yet, so the client may lose a reply that was sent in full.
    """

    def __init__(self, inner: asyncio.Transport, lingers: Callable[[], bool]) -> None:
        """Wrap a transport; `close` calls `lingers` to decide."""
        super().__init__()
        self._inner, self._lingers = inner, lingers
        self._is_lingering = False

    def close(self) -> None:
        """End the stream to the client, then close. Bytes that still arrive must be discarded."""
        if self.is_closing():
            return
        if not self._lingers():
            self._inner.close()
            return
        self._is_lingering = True
        try:
            self._inner.write_eof()
            self._inner.resume_reading()  # else the end of the client's stream would not be noticed
        except (OSError, RuntimeError):  # the client has gone
            self._inner.close()
        else:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._inner.close)

    def is_closing(self) -> bool:
        """Return whether the connection is closing, so that nothing is to be read or written any more."""
        return self._is_lingering or self._inner.is_closing()

    def abort(self) -> None:
        """Close at once, and discard what was not written."""
        self._inner.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes, without waiting."""
        self._inner.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces, without waiting."""
        self._inner.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that were not passed to the system yet."""
        return self._inner.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Pause reading."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (as in asyncio)
        """Return information about the connection, such as `peername`."""
        return self._inner.get_extra_info(name, default)
