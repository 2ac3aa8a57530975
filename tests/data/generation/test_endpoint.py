"""The client of an OpenAI-compatible endpoint, against a real server that fails in every way."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from taugate.data.generation.language_model import TRIES, ModelEndpoint, ParaphrasePrompt
from taugate.errors import InputError
from tests.language_model import FakeModel, cut_off, fake_model, half_json, html, slow, status
from tests.pace import at_most

PROMPT = ParaphrasePrompt("Taugate certifies similarity thresholds.", 0)


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with fake_model() as served:
        yield served


def endpoint(model: FakeModel, **options: float) -> ModelEndpoint:
    return ModelEndpoint(model.url, "m", "secret", **{"timeout": 5.0, "first_wait": 0.01, **options})


def test_request_is_chat_with_seed_and_key(model: FakeModel) -> None:
    reply = endpoint(model).ask(PROMPT)
    assert reply[:3] == ("What is Taugate certifies similarity thresholds.?", 100, 10)
    (body,) = model.requests
    assert (body["model"], body["seed"], body["temperature"], body["top_p"]) == ("m", PROMPT.seed, 1.0, 0.9)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    assert model.headers["Authorization"] == "Bearer secret"


def test_missing_key_sends_no_header(model: FakeModel) -> None:
    ModelEndpoint(f"{model.url}/chat/completions/", "m", None).ask(PROMPT)
    assert "Authorization" not in model.headers


@pytest.mark.parametrize(
    "fault",
    [status(429), status(500), status(502, "<html>bad gateway"), status(503), cut_off, half_json, slow(1.0)],
    ids=["429", "500", "502", "503", "cut", "half", "slow"],
)
def test_transient_failure_is_retried(model: FakeModel, fault: object) -> None:
    model.faults = [fault, fault]
    assert endpoint(model, timeout=0.5).ask(PROMPT).text
    assert len(model.requests) == 3


def test_retry_after_in_seconds_is_honoured(model: FakeModel) -> None:
    model.faults = [status(429, Retry_After="1")]
    endpoint(model).ask(PROMPT)
    assert model.times[1] - model.times[0] >= 0.9


def test_retry_after_date_is_honoured(model: FakeModel) -> None:
    date = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    model.faults = [status(429, Retry_After=format_datetime(date, usegmt=True))]
    endpoint(model).ask(PROMPT)
    assert datetime.now(UTC) >= date


def test_retry_after_delays_all_requests(model: FakeModel) -> None:
    requests = endpoint(model)
    model.faults = [status(429, Retry_After="1")]
    requests.ask(PROMPT)
    began = time.monotonic()
    model.faults = [status(429, Retry_After="1")]
    requests.ask(PROMPT)
    requests.ask(PROMPT)
    assert time.monotonic() - began < at_most(2)


def test_endpoint_gives_up_after_max_tries(model: FakeModel) -> None:
    model.faults = [status(500)] * 20
    with pytest.raises(
        ConnectionError, match=rf"{TRIES} attempts failed, the last one as the status was 500 .no.; all replies"
    ):
        endpoint(model).ask(PROMPT)
    assert len(model.requests) == TRIES


def test_exhausted_quota_fails_at_once(model: FakeModel) -> None:
    model.faults = [status(429, Retry_After="86400")]
    with pytest.raises(ConnectionError, match="requires a wait of 86400 seconds; run the same command again then"):
        endpoint(model).ask(PROMPT)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (html, "the response is HTML, not JSON; give --endpoint the URL that /chat/completions follows"),
        (status(200, "<p>welcome"), "the response is HTML, not JSON"),
        (status(200, "welcome", Content_Type="text/plain"), "the response is text/plain, not JSON"),
        (status(200, '{"object": "list"}'), "the response is not a chat completion"),
        (status(200, "[1]"), "the response is not a chat completion"),
        (status(401), r"status 401 \(no\); check the key in TAUGATE_LLM_KEY"),
        (status(403, "<html>"), "status 403; this key may not use the model"),
        (status(404, '{"error": "unknown model"}'), r"status 404 \(unknown model\); check --endpoint, whose path"),
        (status(400), r"status 400 \(no\); check --endpoint and --model"),
        (status(301, "", Location="http://example.org"), "status 301; give --endpoint the URL it moved to"),
    ],
)
def test_permanent_failure_reported_at_once(model: FakeModel, fault: object, message: str) -> None:
    model.faults = [fault]
    with pytest.raises(InputError, match=message) as caught:
        endpoint(model).ask(PROMPT)
    assert len(model.requests) == 1
    assert "secret" not in str(caught.value)


def test_refused_connection_is_reported() -> None:
    with pytest.raises(ConnectionError, match=r"attempts failed, the last one as the connection failed \(ConnectError"):
        ModelEndpoint("http://127.0.0.1:9/v1", "m", None, first_wait=0.001).ask(PROMPT)


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8080", "ftp://host/v1", "http://", "http://[", "http://h:x"),
        *("http://user:secret@host/v1", "ftp://user:secret@host", "http://host/v1?key=secret", "http://host/v1#secret"),
    ],
)
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="--endpoint") as caught:
        ModelEndpoint(url, "m", None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["secrét", "secret\nline", "secret\n", "two secret", "\x00secret"])
def test_invalid_key_refused_and_not_shown(key: str) -> None:
    with pytest.raises(InputError, match="TAUGATE_LLM_KEY: holds a space") as caught:
        ModelEndpoint("http://localhost/v1", "m", key)
    assert "secr" not in str(caught.value)


def test_key_repeated_by_server_is_hidden(model: FakeModel) -> None:
    model.faults = [status(401, f'{{"error": {{"message": "{"x" * 197} secret is wrong"}}}}')]
    with pytest.raises(InputError, match="status 401") as caught:
        endpoint(model).ask(PROMPT)
    assert "sec" not in str(caught.value).partition("check the key")[0]


def test_model_name_at_two_servers_is_two_models() -> None:
    one, two = (ModelEndpoint(f"http://{host}/v1", "m", None) for host in ("one", "two"))
    assert one.identity != two.identity
    assert one.identity == ModelEndpoint("http://one/v1/chat/completions", "m", "key").identity


def test_closed_endpoint_stops_waiting(model: FakeModel) -> None:
    requests = endpoint(model)
    requests.close()
    model.faults = [status(429, Retry_After="100")]
    with pytest.raises((ConnectionError, RuntimeError)):
        requests.ask(PROMPT)
