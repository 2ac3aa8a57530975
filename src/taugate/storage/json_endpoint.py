"""Sends JSON to an HTTP endpoint and reads its reply, bounded in time and in memory.

A request has one deadline for all of it, from the resolution of the name to the last byte: a server that sends a byte
now and then never exceeds the timeout of a single read. So requests run in an event loop, which has a thread of its
own; callers wait in their threads. When to try again, storage/retries.py decides.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import orjson

from taugate.errors import InputError
from taugate.storage.loopback import is_on_loopback

_KEY = re.compile(r"[!-~]+")  # characters allowed in a header after "Bearer "
_PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy"}
_REFUSED = {400, 413, 422}  # the endpoint works, but does not take this body
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504, 529}

Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Wording:
    """How messages name the settings of an endpoint.

    Attributes:
        url: Option of the URL.
        model: Options that decide what is requested of it.
        key: Variable of the key.
        key_sources: Everything that may hold the key.
        path: What follows the base URL.
        expected: What the endpoint should reply with, such as "a chat completion".
    """

    url: str
    model: str
    key: str
    key_sources: str
    path: str
    expected: str


class AttemptFailed(ConnectionError):
    """A request that may succeed later; `str(error)` is the reason, as part of a sentence.

    Attributes:
        retry_after: Seconds that the endpoint asks to wait, 0 if it does not say.
        replied: Whether the endpoint replied at once, so that other requests may do better: llama.cpp has the status
            500 for a text that is too long.
    """

    def __init__(self, reason: str, retry_after: float = 0.0, *, replied: bool = False) -> None:
        super().__init__(reason)
        self.retry_after, self.replied = retry_after, replied


class RequestRefused(InputError):
    """An endpoint that does not take the body of a request; other bodies may be taken."""


class JsonEndpoint:
    """One URL that takes JSON by POST and replies with JSON.

    Attributes:
        url: The URL.
    """

    def __init__(self, base: str, key: str | None, wording: Wording) -> None:
        """Prepare requests; sends none.

        Args:
            base: URL without `wording.path`, with which it may end.
            key: API key, sent as a bearer token; None for none.
            wording: How messages name the settings.

        Raises:
            InputError: If the URL, the key or a proxy of the environment cannot be used.
        """
        self.url = f"{_checked(base, wording).removesuffix(wording.path)}{wording.path}"
        self._wording, self._key = wording, key
        if key and not _KEY.fullmatch(key):  # httpx2 would repeat it in its own error
            raise InputError(f"{wording.key}: holds a space, a line break or a letter with an accent; copy it again")
        # Only identity, because a small compressed body may expand to gigabytes.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._proxied = not is_on_loopback(self.url)
        try:
            context = httpx2.create_ssl_context()
            self._http = httpx2.AsyncClient(headers=headers, timeout=None, verify=context, trust_env=self._proxied)
        except ImportError as error:  # of httpx2, for a proxy socks5://…
            raise InputError(f"{self.url}: {_proxies()} names a SOCKS proxy: pip install 'httpx2[socks]'") from error
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            variables = _proxies() or "SSL_CERT_FILE"
            raise InputError(f"{self.url}: {variables} cannot be used: {error}; correct it or unset it") from error
        self._changing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = threading.Event()

    def attempt(self, content: bytes, parse: Callable[[bytes], Reply | None], max_bytes: int, seconds: float) -> Reply:
        """Send one request, and return what `parse` makes of the reply. Callable in any thread.

        Args:
            content: Body of the request, JSON.
            parse: Parses a reply; returns None if it is incomplete, and raises ValueError, LookupError, TypeError or
                AttributeError if it is something else.
            max_bytes: Size of the largest valid reply.
            seconds: Limit for the whole request.

        Raises:
            AttemptFailed: If another attempt may succeed.
            RequestRefused: If the endpoint does not take this body.
            InputError: If the endpoint takes no request, or its reply is something else.
        """
        with self._changing:
            loop = self._running_loop()
            sending = asyncio.run_coroutine_threadsafe(self._send(content, max_bytes, seconds), loop)
        try:
            status, headers, received = sending.result()
        except TimeoutError as error:
            raise AttemptFailed("it timed out") from error
        except CancelledError as error:
            raise self.closing() from error
        except (httpx2.TransportError, OSError) as error:
            proxies = _proxies() if self._proxied else ""
            named = f", and {proxies} names a proxy" if proxies else ""
            raise AttemptFailed(f"the connection failed ({type(error).__name__}: {error}){named}") from error
        waits = retry_after(headers)
        if status in TRANSIENT:
            message = self._message(received)
            raise AttemptFailed(f"the status was {status}{message}", waits, replied=status == 500)
        if status != 200:
            kind = RequestRefused if status in _REFUSED else InputError
            raise kind(f"{self.url}: {self._refusal(status, received)}")
        reply = self._parsed(headers, received, parse)
        if reply is None:
            raise AttemptFailed("the response was incomplete", waits)
        return reply

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

    async def _send(self, content: bytes, max_bytes: int, seconds: float) -> tuple[int, Mapping[str, str], bytes]:
        async with asyncio.timeout(seconds), self._http.stream("POST", self.url, content=content) as response:
            received = bytearray()
            async for part in response.aiter_raw(64 << 10):
                received += part
                if len(received) > max_bytes:
                    size = f"{max_bytes >> 20} MiB" if max_bytes >> 20 else f"{max_bytes:,} bytes"
                    raise InputError(f"{self.url}: response exceeds {size}; check {self._wording.url}")
            return response.status_code, response.headers, bytes(received)

    def _parsed(
        self, headers: Mapping[str, str], content: bytes, parse: Callable[[bytes], Reply | None]
    ) -> Reply | None:
        wording = self._wording
        try:
            return parse(content)
        except orjson.JSONDecodeError:
            kind = headers.get("content-type", "").partition(";")[0].strip()
            if "html" in kind or content.lstrip()[:1] == b"<":
                raise InputError(
                    f"{self.url}: the response is HTML, not JSON; give {wording.url} the URL that {wording.path} "
                    "follows, such as http://localhost:8080/v1"
                ) from None
            if content.lstrip()[:1] in {b"{", b"[", b""} and "content-encoding" not in headers:
                return None
            raise InputError(f"{self.url}: the response is {kind or 'text'}, not JSON; check {wording.url}") from None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            detail = f", as {error}" if isinstance(error, ValueError) else ""
            raise InputError(
                f"{self.url}: the response is not {wording.expected}{detail}; check {wording.url}"
            ) from None

    def _refusal(self, status: int, content: bytes) -> str:
        """Describe the meaning of a status and the remedy."""
        url, model = self._wording.url, self._wording.model
        advice = {
            401: f"check the key in {self._wording.key_sources}",
            402: "the account has no credit",
            403: "this key may not use the model",
            404: f"check {url}, whose path usually ends with /v1, and {model}",
        }.get(status, f"check {url} and {model}" if not 300 <= status < 400 else f"give {url} the URL it moved to")
        return f"responded with status {status}{self._message(content)}; {advice}"

    def _message(self, content: bytes) -> str:
        """Return the server's own message in parentheses if the response is JSON, without the key, if it repeats it."""
        try:
            error: Any = orjson.loads(content)["error"]
            message = str(error["message"] if isinstance(error, dict) else error)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return ""
        return f" ({(message.replace(self._key, '…') if self._key else message)[:200]})"


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _checked(url: str, wording: Wording) -> str:
    if "@" in url or "?" in url or "#" in url:  # not repeated: it may hold a password or a key
        raise InputError(
            f"{wording.url}: the URL may hold no password, and nothing after ? or #; put the key into the file that "
            f"{wording.key.removesuffix('_FILE')}_FILE names"
        )
    invalid = InputError(f"{wording.url} {url}: not an HTTP URL; give one such as http://localhost:8080/v1")
    try:
        parsed = urlsplit(url)
        valid = parsed.scheme in {"http", "https"} and bool(parsed.hostname) and parsed.port != 0
    except ValueError as error:
        raise invalid from error
    if not valid:
        raise invalid
    return url.rstrip("/")


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After, which is a number of seconds or a date; 0 if there is none."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):  # no date, or one that no clock has
        return 0.0


def _proxies() -> str:
    """Return the names of the environment variables that name a proxy, as they are spelt."""
    return ", ".join(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])
