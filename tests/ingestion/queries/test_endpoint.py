"""The client of an OpenAI-compatible endpoint, against a real server that fails in every way."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from taugate.errors import InputError
from taugate.ingestion.queries.endpoint import TRIES, Endpoint
from taugate.ingestion.queries.prompt import BUILT_IN, Prompt
from tests.language_model import FakeModel, cut_off, fake_model, half_json, html, slow, status

PROMPT = Prompt.of("Taugate certifies similarity thresholds.", BUILT_IN, 0)


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with fake_model() as served:
        yield served


def endpoint(model: FakeModel, **options: float) -> Endpoint:
    return Endpoint(model.url, "m", "secret", **{"timeout": 5.0, "first_wait": 0.01, **options})


def test_a_request_is_a_chat_with_examples_seed_and_key(model: FakeModel) -> None:
    reply = endpoint(model).ask(PROMPT)
    assert reply[:3] == ("What is Taugate certifies similarity thresholds.?", 100, 10)
    (body,) = model.requests
    assert (body["model"], body["seed"], body["temperature"], body["top_p"]) == ("m", PROMPT.seed, 1.0, 0.9)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    assert model.headers["Authorization"] == "Bearer secret"


def test_no_key_sends_no_header(model: FakeModel) -> None:
    Endpoint(f"{model.url}/chat/completions/", "m", None).ask(PROMPT)
    assert "Authorization" not in model.headers


@pytest.mark.parametrize(
    "fault",
    [status(429), status(500), status(502, "<html>bad gateway"), status(503), cut_off, half_json, slow(1.0)],
    ids=["429", "500", "502", "503", "cut", "half", "slow"],
)
def test_what_may_pass_is_tried_again(model: FakeModel, fault: object) -> None:
    model.faults = [fault, fault]
    assert endpoint(model, timeout=0.5).ask(PROMPT).text
    assert len(model.requests) == 3


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_honoured(model: FakeModel, date: bool) -> None:
    # A date has whole seconds, so that up to one of the two is lost in rounding.
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if date else "1"
    model.faults = [status(429, Retry_After=value)]
    endpoint(model).ask(PROMPT)
    assert model.times[1] - model.times[0] >= 0.9


def test_one_that_has_to_wait_speaks_for_all(model: FakeModel) -> None:
    asked = endpoint(model)
    model.faults = [status(429, Retry_After="1")]
    asked.ask(PROMPT)
    began = time.monotonic()
    model.faults = [status(429, Retry_After="1")]
    asked.ask(PROMPT)
    asked.ask(PROMPT)
    assert time.monotonic() - began < 2


def test_it_gives_up_after_so_many_tries_with_one_sentence(model: FakeModel) -> None:
    model.faults = [status(500)] * 20
    with pytest.raises(ConnectionError, match=rf"{TRIES} tries failed, the last one because status 500; the replies"):
        endpoint(model).ask(PROMPT)
    assert len(model.requests) == TRIES


def test_a_quota_that_is_used_up_ends_at_once(model: FakeModel) -> None:
    model.faults = [status(429, Retry_After="86400")]
    with pytest.raises(ConnectionError, match="asks to wait for 86400 seconds; run the same command again then"):
        endpoint(model).ask(PROMPT)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (html, "answers with HTML, not with JSON; give --endpoint the URL that /chat/completions follows"),
        (status(200, "<p>welcome"), "answers with HTML, not with JSON"),
        (status(200, "welcome", Content_Type="text/plain"), "answers with text/plain, not with JSON"),
        (status(200, '{"object": "list"}'), "JSON that is no chat completion"),
        (status(200, "[1]"), "JSON that is no chat completion"),
        (status(401), r"status 401 \(no\); check the key in TAUGATE_LLM_KEY"),
        (status(403, "<html>"), "status 403; this key may not use the model"),
        (status(404, '{"error": "unknown model"}'), r"status 404 \(unknown model\); check --endpoint, whose path"),
        (status(400), r"status 400 \(no\); check --endpoint and --model"),
        (status(301, "", Location="http://example.org"), "status 301; give --endpoint the URL it moved to"),
    ],
)
def test_what_will_not_pass_is_one_sentence_at_once(model: FakeModel, fault: object, message: str) -> None:
    model.faults = [fault]
    with pytest.raises(InputError, match=message) as caught:
        endpoint(model).ask(PROMPT)
    assert len(model.requests) == 1
    assert "secret" not in str(caught.value)


def test_nobody_listens() -> None:
    with pytest.raises(ConnectionError, match="tries failed, the last one because ConnectError"):
        Endpoint("http://127.0.0.1:9/v1", "m", None, first_wait=0.001).ask(PROMPT)


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8080", "ftp://host/v1", "http://", "http://[", "http://h:x"),
        *("http://user:secret@host/v1", "ftp://user:secret@host", "http://host/v1?key=secret", "http://host/v1#secret"),
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="--endpoint") as caught:
        Endpoint(url, "m", None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["secrét", "secret\nline", "secret\n", "two secret", "\x00secret"])
def test_a_key_that_no_header_holds_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(InputError, match="TAUGATE_LLM_KEY: holds a space") as caught:
        Endpoint("http://localhost/v1", "m", key)
    assert "secr" not in str(caught.value)


def test_a_server_that_repeats_the_key(model: FakeModel) -> None:
    model.faults = [status(401, f'{{"error": {{"message": "{"x" * 197} secret is wrong"}}}}')]
    with pytest.raises(InputError, match="status 401") as caught:
        endpoint(model).ask(PROMPT)
    assert "sec" not in str(caught.value).partition("check the key")[0]


def test_one_name_at_two_servers_is_two_models() -> None:
    one, two = (Endpoint(f"http://{host}/v1", "m", None) for host in ("one", "two"))
    assert one.identity != two.identity
    assert one.identity == Endpoint("http://one/v1/chat/completions", "m", "key").identity


def test_a_closed_endpoint_waits_no_longer(model: FakeModel) -> None:
    asked = endpoint(model)
    asked.close()
    model.faults = [status(429, Retry_After="100")]
    with pytest.raises((ConnectionError, RuntimeError)):
        asked.ask(PROMPT)
