"""The local model: the real one if its packages are installed, and invalid files."""

import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from taugate.data.generation.language_model import MAX_REPLY, LocalModel, ParaphrasePrompt, packaged_model
from taugate.errors import InputError

if find_spec("xllamacpp") is None:  # LocalModel imports it with threads that sleep instead of spinning
    pytest.skip("needs the extra generate", allow_module_level=True)
TEXT = "Taugate certifies the similarity threshold of a retrieval service. The threshold is called tau."


@pytest.fixture(scope="module")
def model() -> LocalModel:
    try:
        packaged_model()
    except InputError as error:
        pytest.skip(str(error))
    return LocalModel(None)


def test_local_reply_depends_on_prompt_and_seed(model: LocalModel) -> None:
    first, other = ParaphrasePrompt(TEXT, 0), ParaphrasePrompt(TEXT, 1)
    reply = model.ask(first)
    assert model.ask(other).text != reply.text
    assert model.ask(first)[:3] == reply[:3]
    assert reply.text
    assert 0 < reply.reply_tokens <= MAX_REPLY
    assert reply.prompt_tokens > 50
    assert "\n" not in reply.text


def test_local_server_refuses_other_clients(model: LocalModel) -> None:
    address = model._server.listening_address.removeprefix("http://")
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
