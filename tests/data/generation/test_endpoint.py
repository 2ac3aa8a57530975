"""The client of an OpenAI-compatible endpoint, against a real server that fails in every way."""

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from taugate.data.generation.language_model import (
    MAX_REPLY,
    TRIES,
    Completion,
    LocalModel,
    ModelEndpoint,
    ParaphrasePrompt,
    packaged_model,
    paraphrases_by_model,
    paraphrases_by_rules,
    query_in,
)
from taugate.data.questions import QuestionRule
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


if find_spec("xllamacpp") is None:  # LocalModel imports it with threads that sleep instead of spinning
    pytest.skip("needs the extra generate", allow_module_level=True)
TEXT = "Taugate certifies the similarity threshold of a retrieval service. The threshold is called tau."


@pytest.fixture(scope="module")
def local_model() -> LocalModel:
    try:
        packaged_model()
    except InputError as error:
        pytest.skip(str(error))
    return LocalModel(None)


def test_local_reply_depends_on_prompt_and_seed(local_model: LocalModel) -> None:
    first, other = ParaphrasePrompt(TEXT, 0), ParaphrasePrompt(TEXT, 1)
    reply = local_model.ask(first)
    assert local_model.ask(other).text != reply.text
    assert local_model.ask(first)[:3] == reply[:3]
    assert reply.text
    assert 0 < reply.reply_tokens <= MAX_REPLY
    assert reply.prompt_tokens > 50
    assert "\n" not in reply.text


def test_local_server_refuses_other_clients(local_model: LocalModel) -> None:
    address = local_model._server.listening_address.removeprefix("http://")
    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port))) as connection:
        body = b'{"prompt": "x"}'
        head = f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert b" 401 " in connection.recv(100)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file; give the path of a GGUF file"),
        (lambda path: path.write_bytes(b"PK\3\4"), "not a GGUF file"),
        (lambda path: path.write_bytes(b"GGUF" + bytes(100)), "llama.cpp cannot load it"),
        (lambda path: path.mkdir(), "the folder holds 0 GGUF files"),
    ],
)
def test_invalid_local_model_is_refused(tmp_path: Path, make, message: str) -> None:
    path = tmp_path / "model.gguf"
    make(path)
    with pytest.raises(InputError, match=message):
        LocalModel(path)


def test_english_paraphrases_are_polite_or_key_words() -> None:
    assert paraphrases_by_rules("What is the tuning of\n a ukulele?", QuestionRule("English")) == (
        "I would like to know: What is the tuning of a ukulele?",
        "Could somebody help me with this? What is the tuning of a ukulele?",
        "tuning a ukulele",
    )


@pytest.mark.parametrize(
    ("language", "query", "words"),
    [
        ("German", "Wie oft wird der Ofen gereinigt?", "oft Ofen gereinigt"),
        ("Spanish", "¿Cuánto cuesta la licencia?", "cuesta licencia"),
        ("Chinese", "如何泡茶？", "如何泡茶"),
        (None, "Jak se vaří čaj?", "Jak se vaří čaj"),
    ],
)
def test_languages_have_their_own_frames(language: str | None, query: str, words: str) -> None:
    results = paraphrases_by_rules(query, QuestionRule(language))
    assert results[2] == words
    assert len({query, *results}) == 4
    assert all(query in item for item in results[:2])


@pytest.mark.parametrize("language", ["English", "Chinese", None])
def test_query_of_function_words_leaves_no_empty_text(language: str | None) -> None:
    for query in ("What is it?", "?"):
        assert all(paraphrases_by_rules(query, QuestionRule(language)))


class Parrot:
    """Replies with a numbered variant of each query, or with a given text."""

    name = "parrot"
    parallel = 2

    def __init__(self, reply: str, identity: str) -> None:
        self.identity, self.reply = identity, reply
        self.asked: list[ParaphrasePrompt] = []

    def ask(self, prompt: ParaphrasePrompt) -> Completion:
        self.asked.append(prompt)
        return Completion(self.reply.format(query=prompt.query, seed=prompt.seed), 1, 1, 0.0)

    def close(self) -> None: ...


def test_model_paraphrases_are_distinct_and_cached() -> None:
    queries, counted = ["Which bird sleeps?", "How warm is Mars?"], []
    first = Parrot("In other words {seed}: {query}\nmore", "parrot-1")
    written = paraphrases_by_model(queries, 3, 0, first, lambda: counted.append(1))
    assert len(first.asked) == len(counted) == len({prompt.seed for prompt in first.asked}) == 12
    for query, results in zip(queries, written, strict=True):
        assert len(set(results)) == 3
        assert all(text.startswith("In other words") and text.endswith(query) for text in results)
    again = Parrot("never", "parrot-1")
    assert paraphrases_by_model(queries, 3, 0, again, lambda: None) == written
    assert not again.asked


@pytest.mark.parametrize("reply", ["", "{query}", "always the same"])
def test_repetitive_model_is_refused(reply: str) -> None:
    with pytest.raises(InputError, match=r"parrot: wrote [01] paraphrases of 'Which bird sleeps\?', and 3 are needed"):
        paraphrases_by_model(["Which bird sleeps?"], 3, 0, Parrot(reply, f"parrot {reply}"), lambda: None)


def test_chat_and_completion_have_same_content() -> None:
    queries = ["Which bird sleeps?"]
    model = Parrot("{seed}", "parrot-2")
    paraphrases_by_model(queries, 1, 0, model, lambda: None)
    prompt = model.asked[0]
    assert prompt.completion().endswith("Question: Which bird sleeps?\nThe same in other words:")
    assert prompt.messages()[-1] == {"role": "user", "content": "Which bird sleeps?"}


@pytest.mark.parametrize(
    ("reply", "query"),
    [
        (" Who built it?\nExample 5:", "Who built it?"),
        ("\n\n  Relevant Query: Who  built it?", "Who built it?"),
        ('"Who built it?"', "Who built it?"),
        ("**Question:** Who built it?", "Who built it?"),
        ("1. Who built it?\n2. When?", "Who built it?"),
        ("„Wer hat es gebaut?“", "Wer hat es gebaut?"),
        ("「誰が建てましたか」", "誰が建てましたか"),
        ('Who is "he"?', 'Who is "he"?'),
        ("", ""),
        (" \n\t", ""),
        ('""', ""),
        ("None.", ""),
        ("None of the above?", "None of the above?"),
    ],
)
def test_query_is_extracted_from_reply(reply: str, query: str) -> None:
    assert query_in(reply) == query
