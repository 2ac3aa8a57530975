"""The end of a connection in two steps, so that the client reads all that it was sent (RFC 9112, section 9.6)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_LINGER_SECONDS = 2.0  # in which a client that has read the end of the stream closes its side


class LingeringTransport(asyncio.Transport):
    """A TCP transport that may linger when it is closed: it says that no more is sent, and waits for the client's end.

    To close a socket at once, while bytes of the client are unread or on their way, resets the connection. A reset
    also discards what the client has not read yet, so that it may lose a reply that was sent in full.
    """

    def __init__(self, inner: asyncio.Transport, lingers: Callable[[], bool]) -> None:
        """Wrap a transport.

        Args:
            inner: Of the connection.
            lingers: Whether `close` lingers, asked when it is called.
        """
        super().__init__()
        self._inner, self._lingers = inner, lingers
        self._is_lingering = False

    def close(self) -> None:
        """End the stream to the client once it is written, and close; whatever still comes has to be discarded."""
        if self.is_closing():
            return
        if not self._lingers():
            self._inner.close()
            return
        self._is_lingering = True
        try:
            self._inner.write_eof()
            self._inner.resume_reading()  # else the client's end would not be noticed
        except (OSError, RuntimeError):  # the client is gone
            self._inner.close()
        else:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._inner.close)

    def is_closing(self) -> bool:
        """Return whether the connection is about to close: nothing more is to be read or written."""
        return self._is_lingering or self._inner.is_closing()

    def abort(self) -> None:
        """Close at once, with whatever was not written."""
        self._inner.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes, without waiting."""
        self._inner.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces, without waiting."""
        self._inner.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the system has not taken yet."""
        return self._inner.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Leave what comes to the system."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read what comes."""
        self._inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (as asyncio has it)
        """Return what is known of the connection, such as `peername`."""
        return self._inner.get_extra_info(name, default)
