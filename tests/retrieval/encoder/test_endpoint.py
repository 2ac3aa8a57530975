"""An encoder behind an endpoint, against a real server that stalls, floods, lies and asks for patience."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.errors import EncoderError, EncoderUnavailable, TextRefused
from taugate.release.encoder import CONFIG, Dialect, EncoderConfig, EndpointRecord
from taugate.retrieval.encoder.encoder import KEY_FILE, URL, EndpointAccess, ExportedEncoder
from taugate.retrieval.encoder.endpoint import max_reply_bytes, read_vectors
from taugate.retrieval.encoder.loading import load_encoder
from tests.embedding_server import EmbeddingServer, dribbling, embedding_server, flooding, random_directions
from tests.language_model import cut_off, html, slow, status

_DIMENSION = 32


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as served:
        yield served


def endpoint_encoder(
    folder: Path, server: EmbeddingServer, access: EndpointAccess | None = None, **config: Any
) -> ExportedEncoder:
    """An encoder behind the server; by default as in a service, which does not wait."""
    record = EndpointRecord(dialect=config.pop("dialect", "openai"), url=server.url, model="m")
    fields = {"dimension": _DIMENSION, "max_length": 64, **config}
    written = EncoderConfig(
        name="m",
        revision="",
        runtime="endpoint",
        pooling="endpoint",
        max_cosine_difference=0,
        endpoint=record,
        **fields,
    )
    folder.mkdir(exist_ok=True)
    (folder / CONFIG).write_text(written.model_dump_json(), encoding="utf-8")
    return load_encoder(folder, access=access or EndpointAccess(seconds=20))


@pytest.mark.parametrize("dialect", ["openai", "tei"])
def test_vectors_are_unit_and_in_order_of_texts(dialect: str, server: EmbeddingServer, tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(70)]
    encoder = endpoint_encoder(tmp_path, server, EndpointAccess(), dialect=dialect, query_prompt="query: ")
    expected = random_directions([f"query: {text}" for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert encoder.encode(texts, "query") == pytest.approx(expected, abs=1e-6)
    assert sorted(len(body.get("input") or body["inputs"]) for body in server.requests) == [6, 32, 32]


def test_text_longer_than_window_is_truncated_between_characters(server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server, max_length=2)
    whole, cut, blank = encoder.tokenize(["eight ch", "sieben€x", " \n"], "document")
    encoder.embed([whole, cut])
    assert server.texts == ["eight ch", "sieben"]
    assert (whole.truncated, cut.truncated, whole.count, blank.unreadable) == (False, True, 2, True)
    assert not encoder.embed([blank]).any()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[1:], "it has 2 vectors for 3 texts"),
        (lambda data: [*data, data[0]], "it has more than 3 vectors"),
        (lambda data: [{**entry, "index": 0} for entry in data], "its indices are not 0 to 2"),
        (lambda data: [{**entry, "embedding": entry["embedding"][1:]} for entry in data], "has 31 numbers, not 32"),
        (lambda data: [{**entry, "embedding": [float("nan")] * 32} for entry in data], "vector 0 has NaN or infinity"),
        (lambda data: [{**entry, "embedding": [None] * 32} for entry in data], "vector 0 has NaN or infinity"),
        (lambda data: [{**entry, "embedding": [0] * 32} for entry in data], "vector 0 is zero"),
        (lambda data: [{**entry, "embedding": "AAAA"} for entry in data], ""),
        (lambda data: [{**entry, "note": "x" * 50_000} for entry in data], "most of it is not vectors"),
        (lambda data: {"detail": "no"}, ""),
    ],
    ids=["fewer", "more", "places", "length", "nan", "null", "zero", "text", "notes", "object"],
)
def test_wrong_reply_is_one_error_with_its_reason(
    change: Callable[[Any], Any], reason: str, server: EmbeddingServer, tmp_path: Path
) -> None:
    server.change = lambda reply: {**reply, "data": change(reply["data"])}
    with pytest.raises(
        EncoderUnavailable, match=rf"/embeddings: the response is not a list.*{reason}|exceeds"
    ) as caught:
        endpoint_encoder(tmp_path, server).encode(["a", "b", "c"], "query")
    assert caught.value.lasting


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (slow(5), "it timed out"),
        (dribbling(5), "it timed out"),  # although every read gets something
        (cut_off, "the connection failed"),
        (status(503), "the status was 503"),
        (html, "the response is HTML, not JSON"),
    ],
    ids=["stall", "dribble", "cut", "503", "html"],
)
def test_failing_endpoint_is_given_up(fault: Any, reason: str, server: EmbeddingServer, tmp_path: Path) -> None:
    server.faults = [fault] * 9
    with pytest.raises(EncoderUnavailable, match=reason):
        endpoint_encoder(tmp_path, server, EndpointAccess(seconds=2)).encode(["a"], "query")


def test_failed_endpoint_is_spared_until_one_request_succeeds(server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server)
    server.faults = [status(503)] * 2
    for _ in range(5):
        with pytest.raises(EncoderUnavailable, match="does not respond, as the status was 503"):
            encoder.encode(["a"], "query")
    assert len(server.requests) == 2  # one request, and its repetition
    time.sleep(1.1)
    assert encoder.encode(["a"], "query").any()
    assert len(server.requests) == 3


def test_retry_after_holds_requests_of_service(server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server)
    server.faults = [status(429, Retry_After="60")]
    with pytest.raises(EncoderUnavailable, match="429"):
        encoder.encode(["a"], "query")
    time.sleep(1.2)  # longer than after other failures
    with pytest.raises(EncoderUnavailable, match="429"):
        encoder.encode(["a"], "query")
    assert len(server.requests) == 1


def test_job_waits_for_retry_after(server: EmbeddingServer, tmp_path: Path) -> None:
    server.faults = [status(429, Retry_After="1")]
    assert endpoint_encoder(tmp_path, server, EndpointAccess()).encode(["a"], "document").any()
    assert server.times[1] - server.times[0] >= 0.9


def test_internal_error_spares_no_later_request(server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server)
    server.faults = [status(500)] * 2
    with pytest.raises(EncoderUnavailable, match="the status was 500"):
        encoder.encode(["a"], "query")
    assert encoder.encode(["a"], "query").any()


@pytest.mark.parametrize("code", [400, 413, 422])
def test_refused_text_does_not_stop_other_texts(code: int, server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server)
    server.faults = [status(code, '{"error": {"message": "input is too long"}}')]
    with pytest.raises(TextRefused, match=r"input is too long\); check --model, --dimensions and --max-length|TAUGATE"):
        encoder.encode(["a"], "query")
    assert encoder.encode(["b"], "query").any()


TOO_LONG = {
    "vllm": (400, '{"object": "error", "message": "This model\'s maximum context length is 99 tokens.", "code": 400}'),
    "ollama": (400, '{"error": {"message": "the input length exceeds the context length"}}'),
    "llama.cpp": (500, '{"error": {"code": 500, "message": "input is too large to process. increase the batch size"}}'),
    "llama.cpp 2": (400, '{"error": {"message": "the request exceeds the available context size, try increasing it"}}'),
    "tei": (413, '{"error": "Input validation error: `inputs` must have less than 99 tokens. Given: 200"}'),
    "proxy": (413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    "checked": (422, '{"detail": [{"msg": "String should have at most 99 characters", "type": "string_too_long"}]}'),
}


@pytest.mark.parametrize("seconds", [None, 20.0], ids=["job", "service"])
@pytest.mark.parametrize("refusal", TOO_LONG.values(), ids=TOO_LONG)
def test_too_dense_text_is_sent_again_shorter(
    refusal: tuple[int, str], seconds: float | None, server: EmbeddingServer, tmp_path: Path
) -> None:
    """Of a batch, only the text that is too long is shortened; its vector is the same alone."""
    server.max_digits, server.too_long = 99, refusal
    encoder = endpoint_encoder(tmp_path, server, EndpointAccess(seconds=seconds), document_prompt="text: ")
    texts = [f"text {number}" for number in range(9)]
    texts[4] = "123 " * 60
    tokens = encoder.tokenize(texts, "document")
    vectors = encoder.embed(tokens)
    assert [place for place, text in enumerate(tokens) if text.truncated] == [4]
    assert vectors[[0, 8]] == pytest.approx(encoder.encode([texts[0], texts[8]], "document"), abs=1e-6)
    alone = encoder.tokenize([texts[4]], "document")
    assert vectors[4] == pytest.approx(encoder.embed(alone)[0], abs=1e-6)
    assert alone[0].truncated
    read = server.texts[-1]
    assert ("text: " + texts[4]).startswith(read)
    assert 60 < sum(map(str.isdigit, read)) <= 99  # three quarters at a time, so that no more than that is lost


def test_refusal_for_another_reason_is_no_truncation(server: EmbeddingServer, tmp_path: Path) -> None:
    server.max_digits, server.too_long = 99, (400, '{"error": {"message": "the content is not allowed"}}')
    encoder = endpoint_encoder(tmp_path, server)
    tokens = encoder.tokenize(["fine", "123 " * 60], "document")
    with pytest.raises(TextRefused, match="the content is not allowed") as caught:
        encoder.embed(tokens)
    assert caught.value.text == "123 " * 60
    assert not tokens[1].truncated


def test_text_that_is_always_too_long_is_refused(server: EmbeddingServer, tmp_path: Path) -> None:
    server.max_digits = -1
    with pytest.raises(TextRefused, match="maximum context length is 512 tokens"):
        endpoint_encoder(tmp_path, server).encode(["a word " * 30], "document")
    assert len(server.requests) < 10


def test_reply_without_index_keeps_order(server: EmbeddingServer, tmp_path: Path) -> None:
    server.change = lambda reply: {
        **reply,
        "data": [
            {"embedding": entry["embedding"]} for entry in sorted(reply["data"], key=lambda entry: entry["index"])
        ],
    }
    texts = ["a", "b", "c"]
    expected = random_directions(texts) / np.linalg.norm(random_directions(texts), axis=1, keepdims=True)
    assert endpoint_encoder(tmp_path, server).encode(texts, "query") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("part", [b"x", b"{},", b"[0],", b"[", b"0,", b'[1,2],"a":['], ids=repr)
def test_flood_takes_little_memory(part: bytes, server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server, EndpointAccess(seconds=20), dimension=4096)
    server.faults = [flooding(64, part)]
    with peak_memory() as peak, pytest.raises(EncoderUnavailable):
        encoder.encode(["a"] * 8, "query")
    assert peak() < 16 << 20


@pytest.mark.parametrize("part", [b"{},", b"[0],", b"[[[[", b"0,", b"1e9,", b'"a",', b"null,"], ids=repr)
@pytest.mark.parametrize("dialect", ["openai", "tei"])
def test_hostile_reply_of_valid_size_takes_little_memory(part: bytes, dialect: Dialect) -> None:
    size = max_reply_bytes(8, 4096)
    start, end = {"openai": (b'{"data":[', b"0]}"), "tei": (b"[", b"0]")}[dialect]
    content = start + part * ((size - 16) // len(part)) + end
    with peak_memory() as peak, pytest.raises((ValueError, LookupError, TypeError)):
        read_vectors(dialect, content, 8, 4096)
    assert peak() < 8 << 20


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """The most bytes that the block has allocated at one time, of Python's and NumPy's objects."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_key_is_sent_only_to_named_url(server: EmbeddingServer, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("secret\n", encoding="utf-8")
    with pytest.raises(EncoderError, match=rf"{KEY_FILE}: a key is sent only to a URL.*set {URL}=http"):
        endpoint_encoder(tmp_path / "one", server, EndpointAccess(None, key_file, 5))
    assert not server.requests
    named = endpoint_encoder(tmp_path / "two", server, EndpointAccess(server.url, key_file, 5))
    named.encode(["a"], "query")
    assert server.headers["Authorization"] == "Bearer secret"
    server.faults = [status(401, '{"error": {"message": "secret is wrong"}}')]
    with pytest.raises(EncoderUnavailable, match=f"status 401 .*check the key in the file of {KEY_FILE}") as caught:
        named.encode(["a"], "query")
    assert "secret" not in str(caught.value)


def test_closed_encoder_fails_at_once(server: EmbeddingServer, tmp_path: Path) -> None:
    encoder = endpoint_encoder(tmp_path, server)
    encoder.encode(["a"], "query")
    encoder.close()
    with pytest.raises(EncoderUnavailable, match="giving up on this endpoint"):
        encoder.encode(["a"], "query")
