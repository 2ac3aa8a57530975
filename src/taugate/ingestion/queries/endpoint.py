"""A language model behind an OpenAI-compatible HTTP endpoint: POST {url}/chat/completions."""

import os
import random
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson

from taugate.errors import InputError
from taugate.ingestion.loopback import is_on_loopback
from taugate.ingestion.queries.prompt import MAX_REPLY, TEMPERATURE, TOP_P, Prompt
from taugate.ingestion.queries.replies import Completion

PARALLEL = 4  # concurrent requests: the lowest rate limits of providers allow it
TRIES = 6  # of one request
TIMEOUT_SECONDS = 120.0  # of one request: a model on a processor may take most of it
_FIRST_WAIT, _MAX_WAIT = 1.0, 60.0  # seconds between two tries; they double
_MAX_RETRY_AFTER = 600.0  # seconds; a longer wait means that the quota is exhausted
_MAX_BYTES = 4 << 20  # of a response, which holds one line of text
_KEY = re.compile(r"[!-~]+")  # characters allowed in a header after "Bearer "
_PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy"}
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504, 529}


class Endpoint:
    """A model of an OpenAI-compatible server, such as vLLM, llama.cpp, Ollama or a provider.

    It honours Retry-After, waits longer after each failure, and gives up a request after TRIES attempts.

    Attributes:
        url: Base URL of the API, such as http://localhost:8080/v1.
        model: Name of the model on the server.
        key: API key, sent as a bearer token; None for none.
        timeout: Limit of one request in seconds.
        first_wait: Seconds before the second attempt.
    """

    def __init__(
        self, url: str, model: str, key: str | None, timeout: float = TIMEOUT_SECONDS, first_wait: float = _FIRST_WAIT
    ) -> None:
        self._url = f"{_checked(url).removesuffix('/chat/completions')}/chat/completions"
        # With the URL, as the same name may stand for another model on another server.
        self.name, self.identity, self.parallel = model, f"chat {self._url} {model}", PARALLEL
        self._key, self._first_wait = key, first_wait
        if key and not _KEY.fullmatch(key):  # httpx2 would repeat it in its own error
            raise InputError("TAUGATE_LLM_KEY: holds a space, a line break or a letter with an accent; copy it again")
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._proxied = not is_on_loopback(self._url)
        try:
            context = httpx2.create_ssl_context()
            self._http = httpx2.Client(headers=headers, timeout=timeout, verify=context, trust_env=self._proxied)
        except ImportError as error:  # of httpx2, for a proxy socks5://…
            raise InputError(f"{self._url}: {_proxies()} names a SOCKS proxy: pip install 'httpx2[socks]'") from error
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            variables = _proxies() or "SSL_CERT_FILE"
            raise InputError(f"{self._url}: {variables} cannot be used: {error}; correct it or unset it") from error
        self._not_before = 0.0  # no request before this time: a Retry-After applies to all requests
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt, see `LanguageModel.ask`.

        Raises:
            ConnectionError: If TRIES attempts fail in a row.
        """
        body = {
            "model": self.name,
            "messages": prompt.messages(),
            "temperature": TEMPERATURE,
            "top_p": TOP_P,
            "max_tokens": MAX_REPLY,
            "seed": prompt.seed,
        }
        failure = ""
        for attempt in range(TRIES):
            self._wait()
            try:
                began = time.perf_counter()
                status, headers, content = self._post(orjson.dumps(body))
                seconds = time.perf_counter() - began
            except httpx2.TimeoutException:
                failure = "it timed out"
            except httpx2.TransportError as error:
                failure = f"the connection failed ({type(error).__name__}: {error})"
                if self._proxied and (variables := _proxies()):
                    failure += f", and {variables} names a proxy"
            else:
                if status == 200 and (reply := self._parse(headers, content, seconds)):
                    return reply
                if status != 200 and status not in TRANSIENT:
                    raise InputError(f"{self._url}: {self._refusal(status, content)}")
                failure = "the response was incomplete" if status == 200 else f"the status was {status}"
                self._hold(retry_after(headers))
            if attempt + 1 < TRIES:
                # Jitter, so that clients that failed together do not retry together.
                self._sleep(min(self._first_wait * 2**attempt, _MAX_WAIT) * random.uniform(0.5, 1))  # noqa: S311
        raise ConnectionError(
            f"{self._url}: {TRIES} attempts failed, the last one as {failure}; all replies so far are "
            "cached, and the same command continues from here"
        )

    def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Content-Type": "application/json"}
        with self._http.stream("POST", self._url, content=body, headers=headers) as response:
            content = b""
            for part in response.iter_bytes():
                content += part
                if len(content) > _MAX_BYTES:
                    raise InputError(f"{self._url}: response exceeds {_MAX_BYTES >> 20} MiB; check --endpoint")
            return response.status_code, response.headers, content

    def _parse(self, headers: Mapping[str, str], content: bytes, seconds: float) -> Completion | None:
        """Return the completion in a response, None if the response is incomplete.

        Raises:
            InputError: If the response is not a chat completion.
        """
        try:
            response: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            kind = headers.get("content-type", "").partition(";")[0].strip()
            if "html" in kind or content.lstrip()[:1] == b"<":
                raise InputError(
                    f"{self._url}: the response is HTML, not JSON; give --endpoint the URL that /chat/completions "
                    "follows, such as http://localhost:8080/v1"
                ) from None
            if content.lstrip()[:1] in {b"{", b""}:
                return None
            raise InputError(f"{self._url}: the response is {kind or 'text'}, not JSON; check --endpoint") from None
        try:
            text = response["choices"][0]["message"].get("content") or ""
            usage = response.get("usage") or {}
            read, written = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
            return Completion(str(text), read, written, seconds)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise InputError(
                f"{self._url}: the response is not a chat completion, as it has no choices[0].message; check --endpoint"
            ) from None

    def _refusal(self, status: int, content: bytes) -> str:
        """Describe the meaning of a status and the remedy.

        The server's own message is quoted if the response is JSON, without the key, which some servers repeat.
        """
        try:
            error: Any = orjson.loads(content)["error"]
            message = str(error["message"] if isinstance(error, dict) else error)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            message = ""
        message = (message.replace(self._key, "…") if self._key else message)[:200]
        advice = {
            401: "check the key in TAUGATE_LLM_KEY or TAUGATE_LLM_KEY_FILE",
            402: "the account has no credit",
            403: "this key may not use the model",
            404: "check --endpoint, whose path usually ends with /v1, and --model",
        }.get(
            status, "check --endpoint and --model" if not 300 <= status < 400 else "give --endpoint the URL it moved to"
        )
        return f"responded with status {status}{f' ({message})' if message else ''}; {advice}"

    def close(self) -> None:
        """Close the connections and end all waits, see `LanguageModel.close`."""
        self._closed.set()
        self._http.close()

    def _wait(self) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise ConnectionError(f"{self._url}: giving up on this endpoint")

    def _hold(self, seconds: float) -> None:
        if seconds > _MAX_RETRY_AFTER:
            raise ConnectionError(
                f"{self._url}: requires a wait of {seconds:.0f} seconds; run the same command again then, as the "
                "replies so far are cached"
            )
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)


def _checked(url: str) -> str:
    if "@" in url or "?" in url or "#" in url:  # not repeated: it may hold a password or a key
        raise InputError(
            "--endpoint: the URL may hold no password, and nothing after ? or #; put the key into the file that "
            "TAUGATE_LLM_KEY_FILE names"
        )
    invalid = InputError(f"--endpoint {url}: not an HTTP URL; give one such as http://localhost:8080/v1")
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
    except ValueError:
        return 0.0
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _proxies() -> str:
    """Return the names of the environment variables that name a proxy, as they are spelt."""
    return ", ".join(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])
