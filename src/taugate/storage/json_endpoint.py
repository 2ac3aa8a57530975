"""Sends JSON to an HTTP endpoint and reads its reply; a job can wait for another attempt, a service cannot."""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import orjson

from taugate.errors import InputError
from taugate.storage.http_client import AttemptFailed, HttpClient

_log = logging.getLogger(__name__)

_KEY = re.compile(r"[!-~]+")  # characters allowed in a header after "Bearer "
# Of vLLM, Ollama, llama.cpp, text-embeddings-inference, OpenAI and others.
_TOO_LONG = re.compile(rb"too (?:long|large|many tokens)|\btokens?\b|context|exceed|at most \d|max\w*[ _-]length", re.I)
_REFUSED = {400, 413, 422}  # the endpoint works, but does not take this body
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504, 529}

Reply = TypeVar("Reply")

_MAX_WAIT = 60.0  # seconds between two attempts; they double
_MAX_RETRY_AFTER = 600.0  # seconds; a longer wait means that the quota is exhausted
# Seconds between a failure and the next attempt of a service. An endpoint that limits rates, or is being restarted, may
# name a minute and respond again at once, and one request every five seconds burdens no endpoint.
_PAUSE, _MAX_PAUSE = 1.0, 5.0


@dataclass(frozen=True)
class EndpointWording:
    """How messages name the settings of an endpoint."""

    url: str
    model: str  # options that decide what is requested of it
    key: str
    key_sources: str  # everything that may hold the key
    path: str  # what follows the base URL
    expected: str  # what the endpoint should reply with, such as "a chat completion"


class RequestRefused(InputError):
    """An endpoint that does not take the body of a request; other bodies may be taken."""

    def __init__(self, message: str, *, too_long: bool) -> None:
        super().__init__(message)
        self.too_long = too_long


class JsonEndpoint(HttpClient):
    """One URL that takes JSON by POST and replies with JSON."""

    def __init__(self, base: str, key: str | None, wording: EndpointWording) -> None:
        """Prepare requests; sends none; `key`: API key, sent as a bearer token; None for none."""
        self._wording, self._key = wording, key
        url = f"{_checked(base, wording).removesuffix(wording.path)}{wording.path}"
        check_key(key or "", wording.key)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        super().__init__(url, headers, f"check {wording.url}")

    def attempt(self, content: bytes, parse: Callable[[bytes], Reply | None], max_bytes: int, seconds: float) -> Reply:
        """Send one request, and return what `parse` makes of the reply. Callable in any thread.

        Args:
            parse: Parses a reply; returns None if it is incomplete, and raises ValueError, LookupError, TypeError or
                AttributeError if it is something else.
            max_bytes: Size of the largest valid reply.
            seconds: Limit for the whole request.
        """
        status, headers, received = self.request("POST", self.url, content, {}, max_bytes, seconds)
        waits = retry_after(headers)
        too_long = status == 413 or bool(_TOO_LONG.search(received))
        if status in TRANSIENT:
            message, replied = self._message(received), status == 500
            raise AttemptFailed(
                f"the status was {status}{message}", waits, replied=replied, too_long=replied and too_long
            )
        if status in _REFUSED:
            raise RequestRefused(f"{self.url}: {self._refusal(status, received)}", too_long=too_long)
        if status != 200:
            raise InputError(f"{self.url}: {self._refusal(status, received)}")
        reply = self._parsed(headers, received, parse)
        if reply is None:
            raise AttemptFailed("the response was incomplete", waits)
        return reply

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
            reply: Any = orjson.loads(content)
            error = reply.get("error", reply)
            message = str(error["message"] if isinstance(error, dict) else error)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
            return ""
        return f" ({(message.replace(self._key, '…') if self._key else message)[:200]})"


def _checked(url: str, wording: EndpointWording) -> str:
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


def url_and_key_file(environ: Mapping[str, str], url: str, key_file: str) -> tuple[str, Path | None]:
    """Return an endpoint's URL and key file: the variable `url` may be URL,key_file=FILE, else `key_file` names it."""
    address, _, path = f",{environ.get(url, '')}".partition(",key_file=")
    path = path or environ.get(key_file, "")
    return address.removeprefix(","), Path(path) if path else None


def check_key(key: str, name: str) -> None:
    """Raise InputError, which names the key, if it cannot be sent in a header; httpx2 would repeat it in its error."""
    if key and not _KEY.fullmatch(key):
        raise InputError(f"{name}: holds a space, a line break or a letter with an accent; copy it again")


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


class Requests(Protocol):
    """Requests to an endpoint."""

    endpoint: JsonEndpoint

    def post(self, body: Any, parse: Callable[[bytes], Reply | None], max_bytes: int) -> Reply:  # noqa: ANN401 (JSON)
        """Send a body, and return what `parse` makes of the reply; see JsonEndpoint.attempt."""
        ...


class PatientRequests:
    """Requests of a job: they honour Retry-After, wait longer after each failure, and end after some attempts."""

    def __init__(self, endpoint: JsonEndpoint, *, tries: int, seconds: float, first_wait: float, resume: str) -> None:
        """Send requests to an endpoint; `first_wait`: seconds before the second attempt."""
        self.endpoint = endpoint
        self._tries, self._seconds, self._first_wait, self._resume = tries, seconds, first_wait, resume
        self._not_before = 0.0  # no request before this time: a Retry-After applies to all requests
        self._lock = threading.Lock()

    def post(self, body: Any, parse: Callable[[bytes], Reply | None], max_bytes: int) -> Reply:  # noqa: ANN401 (JSON)
        """See Requests.post."""
        content, failure = orjson.dumps(body), ""
        for attempt in range(self._tries):
            while (seconds := self._not_before - time.monotonic()) > 0:
                self._sleep(seconds)
            try:
                return self.endpoint.attempt(content, parse, max_bytes, self._seconds)
            except AttemptFailed as error:
                failure = str(error)
                if error.too_long:
                    raise AttemptFailed(f"{self.endpoint.url}: {error}", replied=True, too_long=True) from error
                self._hold(error.retry_after)
            if attempt + 1 < self._tries:
                # Jitter, so that clients that failed together do not retry together.
                self._sleep(min(self._first_wait * 2**attempt, _MAX_WAIT) * random.uniform(0.5, 1))  # noqa: S311
        raise ConnectionError(
            f"{self.endpoint.url}: {self._tries} attempts failed, the last one as {failure}; {self._resume}, and the "
            "same command continues from here"
        )

    def _sleep(self, seconds: float) -> None:
        if self.endpoint.closed.wait(seconds):
            raise self.endpoint.closing()

    def _hold(self, seconds: float) -> None:
        if seconds > _MAX_RETRY_AFTER:
            raise ConnectionError(
                f"{self.endpoint.url}: requires a wait of {seconds:.0f} seconds; run the same command again then, as "
                f"{self._resume}"
            )
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)


class PromptRequests:
    """Requests of a service: none takes longer than a limit, and while the endpoint fails, they fail at once.

    After a failure, no request is sent for a second, or as long as Retry-After says, up to five seconds. Then one
    request tries again, and the others keep failing until it succeeds. The error says when that will be.
    """

    def __init__(self, endpoint: JsonEndpoint, seconds: float) -> None:
        """Send requests to an endpoint, each within so many seconds."""
        self.endpoint, self._seconds = endpoint, seconds
        self._failure: str | None = None
        self._next_try = 0.0  # after a failure, when a request may try again
        self._last_reply = 0.0
        self._lock = threading.Lock()

    def post(self, body: Any, parse: Callable[[bytes], Reply | None], max_bytes: int) -> Reply:  # noqa: ANN401 (JSON)
        """See Requests.post."""
        self._admit()
        began = time.monotonic()
        content = orjson.dumps(body)
        try:
            reply = self._attempt_twice(content, parse, max_bytes, began)
        except AttemptFailed as error:
            message = f"{self.endpoint.url}: does not respond, as {error}"
            if error.replied:
                self._responded()
                raise AttemptFailed(message, replied=True, too_long=error.too_long) from error
            pause = max(_PAUSE, min(error.retry_after, _MAX_PAUSE))
            self._failed(str(error), began, pause)
            raise AttemptFailed(message, pause) from error
        except RequestRefused:  # says nothing about other requests
            self._responded()
            raise
        except Exception as error:
            self._failed(str(error), began, _PAUSE)
            raise
        self._responded()
        return reply

    def _attempt_twice(
        self, content: bytes, parse: Callable[[bytes], Reply | None], max_bytes: int, began: float
    ) -> Reply:
        """Repeat a request at once: a server may close an idle connection just when it is used again."""
        try:
            return self.endpoint.attempt(content, parse, max_bytes, self._seconds)
        except AttemptFailed as error:
            remaining = began + self._seconds - time.monotonic()
            if error.retry_after or remaining <= 0 or self._failure is not None:
                raise
            return self.endpoint.attempt(content, parse, max_bytes, remaining)

    def _admit(self) -> None:
        with self._lock:
            if self._failure is None:
                return
            now = time.monotonic()
            if now < self._next_try:
                message = f"{self.endpoint.url}: does not respond, as {self._failure}"
                raise AttemptFailed(message, self._next_try - now)
            self._next_try = now + self._seconds  # this request tries again

    def _responded(self) -> None:
        with self._lock:
            before, self._failure, self._last_reply = self._failure, None, time.monotonic()
        if before is not None:
            _log.info("endpoint is responding again", extra={"fields": {"url": self.endpoint.url}})

    def _failed(self, reason: str, began: float, pause: float) -> None:
        """Record the failure of a request that was sent at `began`, unless another one has succeeded since."""
        with self._lock:
            if began < self._last_reply:
                return
            before, self._failure = self._failure, reason
            self._next_try = time.monotonic() + pause
        if before is None:
            fields = {"url": self.endpoint.url, "reason": reason}
            _log.warning("endpoint is not responding", extra={"fields": fields})
