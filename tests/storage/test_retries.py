"""When a service tries an endpoint again, on a clock that the test moves, and how Retry-After is read."""

from collections.abc import Callable
from typing import Any

import pytest

from taugate.service.errors import EncoderAway
from taugate.storage.http_client import AttemptFailed
from taugate.storage.json_endpoint import PromptRequests, retry_after


class Limited:
    """An endpoint that fails a number of times, and asks to wait for so long."""

    url = "http://127.0.0.1:1"

    def __init__(self, seconds: float, failures: int = 1) -> None:
        self.seconds, self.failures, self.attempts = seconds, failures, 0

    def attempt(self, content: bytes, parse: Callable[[bytes], Any], max_bytes: int, seconds: float) -> Any:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise AttemptFailed("the status was 429", self.seconds)
        return parse(content)


def wait_of(requests: PromptRequests) -> float:
    with pytest.raises(AttemptFailed) as down:
        requests.post({}, bytes, 100)
    return down.value.retry_after


@pytest.mark.parametrize(("asked", "pause"), [(0.5, 1.0), (3, 3.0), (60, 5.0), (1e9, 5.0), (float("inf"), 5.0)])
def test_endpoint_is_tried_again_within_five_seconds(
    asked: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    endpoint = Limited(asked)
    requests = PromptRequests(endpoint, 4.0)  # type: ignore[arg-type]  # what it uses of a JsonEndpoint
    assert wait_of(requests) == pause
    now += pause - 0.25
    assert wait_of(requests) == 0.25
    assert endpoint.attempts == 1
    now += 0.25
    assert requests.post({}, bytes, 100) == b"{}"


@pytest.mark.parametrize(("wait", "seconds"), [(0.0, 2), (1.0, 2), (2.1, 3), (5.0, 5)])
def test_reply_names_wait_in_message_and_header(wait: float, seconds: int) -> None:
    error = EncoderAway(wait)
    assert error.headers == {"Retry-After": str(seconds)}
    assert str(error).endswith(f"retries within {seconds} s")


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 01 Jan 2020 00:00:00 +99999999999999",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan z020 00:00:00 +99999999999999",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Mon, 99 Jan 2020 00:00:00 GMT",
        "-5",
        "soon",
        "",
    ],
)
def test_impossible_retry_after_is_ignored(value: str) -> None:
    assert retry_after({"retry-after": value}) == 0.0


def test_retry_after_is_seconds_or_date() -> None:
    assert retry_after({"retry-after": "120"}) == 120
    assert retry_after({"retry-after": "Sun, 06 Nov 2094 08:49:37 GMT"}) > 1e9
