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
from taugate.ingestion.queries.replies import Reply

PARALLEL = 4  # requests at a time: a provider's lowest rates allow it
TRIES = 6  # of one request
TIMEOUT_SECONDS = 120.0  # of one request: a model on a processor may take most of it
_FIRST_WAIT, _MAX_WAIT = 1.0, 60.0  # seconds between two tries; they double
_MAX_RETRY_AFTER = 600.0  # seconds; an endpoint that asks for more has no quota left
_MAX_BYTES = 4 << 20  # of an answer: it holds one line of text
_KEY = re.compile(r"[!-~]+")  # what a header may hold after "Bearer "
_PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy"}
_TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504, 529}


class Endpoint:
    """A model of an OpenAI-compatible server, such as vLLM, llama.cpp, Ollama or a provider.

    It honours Retry-After, waits longer after each failure, and gives up after TRIES of one request.

    Attributes:
        url: That the paths of the API follow, such as http://localhost:8080/v1.
        model: Its name there.
        key: That is sent as a bearer token, None for none.
        timeout: Of one request, in seconds.
        first_wait: Seconds before the second try.
    """

    def __init__(
        self, url: str, model: str, key: str | None, timeout: float = TIMEOUT_SECONDS, first_wait: float = _FIRST_WAIT
    ) -> None:
        self._url = f"{_checked(url).removesuffix('/chat/completions')}/chat/completions"
        # The URL too: at another server, the same name may stand for another model.
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
        self._not_before = 0.0  # no request before this time: one that was told to wait speaks for all of them
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def ask(self, prompt: Prompt) -> Reply:
        """See LanguageModel.ask; ConnectionError after TRIES failures in a row."""
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
                failure = "it did not answer in time"
            except httpx2.TransportError as error:
                failure = f"{type(error).__name__}: {error}"
                if self._proxied and (variables := _proxies()):
                    failure += f", and {variables} names a proxy"
            else:
                if status == 200 and (reply := self._parse(headers, content, seconds)):
                    return reply
                if status != 200 and status not in _TRANSIENT:
                    raise InputError(f"{self._url}: {self._refusal(status, content)}")
                failure = "the answer was cut off" if status == 200 else f"status {status}"
                self._hold(_retry_after(headers))
            if attempt + 1 < TRIES:
                # Jitter, so that clients that failed together do not come back together.
                self._sleep(min(self._first_wait * 2**attempt, _MAX_WAIT) * random.uniform(0.5, 1))  # noqa: S311
        raise ConnectionError(
            f"{self._url}: {TRIES} tries failed, the last one because {failure}; the replies so far are kept, so that "
            "the same command goes on from here"
        )

    def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Content-Type": "application/json"}
        with self._http.stream("POST", self._url, content=body, headers=headers) as answer:
            content = b""
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MAX_BYTES:
                    raise InputError(f"{self._url}: answers with more than {_MAX_BYTES >> 20} MiB; check --endpoint")
            return answer.status_code, answer.headers, content

    def _parse(self, headers: Mapping[str, str], content: bytes, seconds: float) -> Reply | None:
        """Return the reply in an answer, None where the answer was cut off.

        Raises:
            InputError: For any other thing.
        """
        try:
            answer: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            kind = headers.get("content-type", "").partition(";")[0].strip()
            if "html" in kind or content.lstrip()[:1] == b"<":
                raise InputError(
                    f"{self._url}: answers with HTML, not with JSON; give --endpoint the URL that /chat/completions "
                    "follows, such as http://localhost:8080/v1"
                ) from None
            if content.lstrip()[:1] in {b"{", b""}:
                return None
            raise InputError(f"{self._url}: answers with {kind or 'text'}, not with JSON; check --endpoint") from None
        try:
            text = answer["choices"][0]["message"].get("content") or ""
            usage = answer.get("usage") or {}
            read, written = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
            return Reply(str(text), read, written, seconds)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise InputError(
                f"{self._url}: answers with JSON that is no chat completion: it has no choices[0].message; check "
                "--endpoint"
            ) from None

    def _refusal(self, status: int, content: bytes) -> str:
        """Say what a status means and what to do.

        The server's own words are repeated where the answer is JSON, without the key, which some servers repeat.
        """
        try:
            error: Any = orjson.loads(content)["error"]
            said = str(error["message"] if isinstance(error, dict) else error)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            said = ""
        said = (said.replace(self._key, "…") if self._key else said)[:200]
        advice = {
            401: "check the key in TAUGATE_LLM_KEY or TAUGATE_LLM_KEY_FILE",
            402: "the account has no credit",
            403: "this key may not use the model",
            404: "check --endpoint, whose path usually ends with /v1, and --model",
        }.get(
            status, "check --endpoint and --model" if not 300 <= status < 400 else "give --endpoint the URL it moved to"
        )
        return f"answers with status {status}{f' ({said})' if said else ''}; {advice}"

    def close(self) -> None:
        """See LanguageModel.close."""
        self._closed.set()
        self._http.close()

    def _wait(self) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise ConnectionError(f"{self._url}: is asked no more")

    def _hold(self, seconds: float) -> None:
        if seconds > _MAX_RETRY_AFTER:
            raise ConnectionError(
                f"{self._url}: asks to wait for {seconds:.0f} seconds; run the same command again then: the replies so "
                "far are kept"
            )
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)


def _checked(url: str) -> str:
    if "@" in url or "?" in url or "#" in url:  # not repeated: it may hold a password or a key
        raise InputError(
            "--endpoint: the URL may hold no password, and nothing after ? or #; put the key into the file that "
            "TAUGATE_LLM_KEY_FILE names"
        )
    wrong = InputError(f"--endpoint {url}: not an HTTP URL; give one such as http://localhost:8080/v1")
    try:
        parsed = urlsplit(url)
        valid = parsed.scheme in {"http", "https"} and bool(parsed.hostname) and parsed.port != 0
    except ValueError as error:
        raise wrong from error
    if not valid:
        raise wrong
    return url.rstrip("/")


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After, which is a number of seconds or a date; 0 where there is none."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _proxies() -> str:
    """Name the variables of the environment that name a proxy, as they are spelt there."""
    return ", ".join(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])
