"""When a request to an endpoint is repeated: by a job, which can wait, and by a service, whose callers cannot."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import orjson

from taugate.storage.http_client import AttemptFailed
from taugate.storage.json_endpoint import JsonEndpoint, RequestRefused

_MAX_WAIT = 60.0  # seconds between two attempts; they double
_MAX_RETRY_AFTER = 600.0  # seconds; a longer wait means that the quota is exhausted
# Seconds between a failure and the next attempt of a service. An endpoint that limits rates, or is being restarted, may
# name a minute and respond again at once, and one request every five seconds burdens no endpoint.
_PAUSE, _MAX_PAUSE = 1.0, 5.0
_log = logging.getLogger(__name__)

Reply = TypeVar("Reply")


class Requests(Protocol):
    """Requests to an endpoint."""

    endpoint: JsonEndpoint

    def post(self, body: Any, parse: Callable[[bytes], Reply | None], max_bytes: int) -> Reply:  # noqa: ANN401 (JSON)
        """Send a body, and return what `parse` makes of the reply; see JsonEndpoint.attempt.

        Raises:
            AttemptFailed: If no attempt succeeds, but other bodies may, or the same after a while.
            ConnectionError: If no attempt succeeds.
            InputError: As JsonEndpoint.attempt.
        """
        ...


class PatientRequests:
    """Requests of a job: they honour Retry-After, wait longer after each failure, and end after a number of attempts.

    Attributes:
        endpoint: The endpoint.
    """

    def __init__(self, endpoint: JsonEndpoint, *, tries: int, seconds: float, first_wait: float, resume: str) -> None:
        """Send requests to an endpoint.

        Args:
            endpoint: The endpoint.
            tries: Attempts of one request.
            seconds: Limit of one attempt.
            first_wait: Seconds before the second attempt.
            resume: What to do after a failure, for the error.
        """
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

    Attributes:
        endpoint: The endpoint.
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
