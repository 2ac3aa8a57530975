"""Sends HTTP requests and receives their replies, bounded in time and in memory.

A request has one deadline for all of it, from the resolution of the name to the last byte: a server that sends a byte
now and then never exceeds the timeout of a single read. So requests run in an event loop, which has a thread of its
own; callers wait in their threads.
"""

import asyncio
import ipaddress
import os
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from urllib.parse import urlsplit

import httpx2

from taugate.errors import InputError

_PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy"}


class AttemptFailed(ConnectionError):
    """A request that may succeed later; `str(error)` is the reason, as part of a sentence.

    Attributes:
        retry_after: Seconds that the endpoint asks to wait, 0 if it does not say.
        replied: Whether the endpoint replied at once, so that other requests may do better.
        too_long: Whether it replied that the request is too long, for which llama.cpp has the status 500.
    """

    def __init__(self, reason: str, retry_after: float = 0.0, *, replied: bool = False, too_long: bool = False) -> None:
        super().__init__(reason)
        self.retry_after, self.replied, self.too_long = retry_after, replied, too_long


class HttpClient:
    """Connections to the server of a URL. Nothing is redirected, and only uncompressed replies are requested."""

    def __init__(self, url: str, headers: Mapping[str, str], remedy: str) -> None:
        """Prepare requests; sends none; `remedy`: what to do if a reply is too large."""
        self.url, self._remedy, self._proxied = url, remedy, not is_on_loopback(url)
        # Only identity, because a small compressed body may expand to gigabytes.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        try:
            # To read the certificates of all authorities takes 20 ms, of which http:// uses none.
            secure = url.lower().startswith("https:")
            context = httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._http = httpx2.AsyncClient(headers=headers, timeout=None, verify=context, trust_env=self._proxied)
        except ImportError as error:  # of httpx2, for a proxy socks5://…
            raise InputError(f"{url}: {_proxies()} names a SOCKS proxy: pip install 'httpx2[socks]'") from error
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            variables = _proxies() or "SSL_CERT_FILE"
            raise InputError(f"{url}: {variables} cannot be used: {error}; correct it or unset it") from error
        self._changing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = threading.Event()

    def request(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request; returns the status, headers and content of the reply. Callable in any thread."""
        with self._changing:
            loop = self._running_loop()
            sending = asyncio.run_coroutine_threadsafe(
                self._send(method, url, content, headers, max_bytes, seconds), loop
            )
        try:
            return sending.result()
        except TimeoutError as error:
            raise AttemptFailed("it timed out") from error
        except CancelledError as error:
            raise self.closing() from error
        except (httpx2.RequestError, OSError) as error:
            proxies = _proxies() if self._proxied else ""
            named = f", and {proxies} names a proxy" if proxies else ""
            raise AttemptFailed(f"the connection failed ({type(error).__name__}: {error}){named}") from error

    def closing(self) -> ConnectionError:
        """Return the error of requests after `close`."""
        return ConnectionError(f"{self.url}: giving up on this endpoint")

    def close(self) -> None:
        """Close the connections; requests in progress fail with ConnectionError."""
        with self._changing:
            self.closed.set()
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(loop), loop)

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        requests = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await self._http.aclose()
        loop.call_soon(loop.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop, which the first request starts: a process may fork between the two."""
        if self.closed.is_set():
            raise self.closing()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="taugate-endpoint", daemon=True).start()
        return self._loop

    async def _send(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        sending = self._http.stream(method, url, content=content, headers=headers)
        async with asyncio.timeout(seconds), sending as response:
            received = bytearray()
            async for part in response.aiter_raw(64 << 10):
                received += part
                if len(received) > max_bytes:
                    size = f"{max_bytes >> 20} MiB" if max_bytes >> 20 else f"{max_bytes:,} bytes"
                    raise InputError(f"{url}: response exceeds {size}; {self._remedy}")
            return response.status_code, response.headers, bytes(received)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _proxies() -> str:
    """Return the names of the environment variables that name a proxy, as they are spelt."""
    return ", ".join(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])


def is_on_loopback(url: str) -> bool:
    """Return whether an http:// or https:// URL names a loopback address."""
    # A proxy would resolve the address to its own machine and could read the request.
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
