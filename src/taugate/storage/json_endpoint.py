"""Sends JSON to an HTTP endpoint and reads its reply; when to try again, storage/retries.py decides."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from taugate.errors import InputError
from taugate.storage.http_client import AttemptFailed, HttpClient

_KEY = re.compile(r"[!-~]+")  # characters allowed in a header after "Bearer "
# Of vLLM, Ollama, llama.cpp, text-embeddings-inference, OpenAI and others.
_TOO_LONG = re.compile(rb"too (?:long|large|many tokens)|\btokens?\b|context|exceed|at most \d|max\w*[ _-]length", re.I)
_REFUSED = {400, 413, 422}  # the endpoint works, but does not take this body
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504, 529}

Reply = TypeVar("Reply")


@dataclass(frozen=True)
class EndpointWording:
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


class RequestRefused(InputError):
    """An endpoint that does not take the body of a request; other bodies may be taken.

    Attributes:
        too_long: Whether it replied that the request is too long.
    """

    def __init__(self, message: str, *, too_long: bool) -> None:
        super().__init__(message)
        self.too_long = too_long


class JsonEndpoint(HttpClient):
    """One URL that takes JSON by POST and replies with JSON."""

    def __init__(self, base: str, key: str | None, wording: EndpointWording) -> None:
        """Prepare requests; sends none.

        Args:
            base: URL without `wording.path`, with which it may end.
            key: API key, sent as a bearer token; None for none.
            wording: How messages name the settings.

        Raises:
            InputError: If the URL, the key or a proxy of the environment cannot be used.
        """
        self._wording, self._key = wording, key
        url = f"{_checked(base, wording).removesuffix(wording.path)}{wording.path}"
        check_key(key or "", wording.key)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        super().__init__(url, headers, f"check {wording.url}")

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
