"""The end of a connection, by which the client loses nothing of a reply that was sent."""

import asyncio
from collections.abc import Callable

_LINGER_SECONDS = 2.0  # time for a client to read the end of the stream and close its side
# What uvicorn's protocol and service/http/connection.py call of a transport, besides `close` and `is_closing`.
_PASSED_ON = ("abort", "get_extra_info", "get_write_buffer_size", "pause_reading", "resume_reading", "write")


class LingeringTransport(asyncio.Transport):
    """A TCP transport whose `close` ends its own stream while the process is ending, and waits for the client's end.

    Closing a socket while bytes from the client are unread or in transit resets the connection. A reset also discards
    data that the client has not read yet, so the client may lose a reply that was sent in full (RFC 9112, section 9.6).
    """

    def __init__(self, inner: asyncio.Transport, is_ending: Callable[[], bool]) -> None:
        super().__init__()
        self._inner, self._is_ending, self._is_lingering = inner, is_ending, False
        for name in _PASSED_ON:
            setattr(self, name, getattr(inner, name))

    def close(self) -> None:
        """End the stream to the client, then close. Bytes that still arrive must be discarded."""
        if self.is_closing():
            return
        if not self._is_ending():
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
