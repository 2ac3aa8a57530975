"""The engine that the environment names, and the errors if it names none."""

import subprocess
import sys
from pathlib import Path

import pytest

from taugate.errors import InputError
from taugate.retrieval.engines import pgvector
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.engine import EngineKind


def test_urls_and_secret_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[list[str], str]] = []
    monkeypatch.setattr(pgvector, "PgvectorEngine", lambda urls, password: made.append((urls, password)))
    (tmp_path / "data").write_text("hunter2\n")
    (tmp_path / "token").symlink_to("data")  # as Kubernetes mounts it
    one, two = "postgresql://a@h/db", "postgresql:///db?host=/run/pg"
    engine_from_environment("pgvector", {"TAUGATE_ENGINE_URL": f"{one}, {two},"})
    engine_from_environment(
        "pgvector", {"TAUGATE_ENGINE_URL": one, "TAUGATE_ENGINE_TOKEN_FILE": str(tmp_path / "token")}
    )
    assert made == [([one, two], ""), ([one], "hunter2")]


@pytest.mark.parametrize("url", [None, "", " , "])
def test_missing_url_is_named(url: str | None) -> None:
    environ = {} if url is None else {"TAUGATE_ENGINE_URL": url}
    with pytest.raises(InputError, match="TAUGATE_ENGINE_URL is not set, and the vectors are in milvus"):
        engine_from_environment("milvus", environ)


def test_unreadable_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("none", "binary", ""):
        environ = {"TAUGATE_ENGINE_URL": "http://h", "TAUGATE_ENGINE_TOKEN_FILE": str(tmp_path / name)}
        with pytest.raises(InputError, match="TAUGATE_ENGINE_TOKEN_FILE: .* cannot be read as text"):
            engine_from_environment("milvus", environ)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "taugate.retrieval.engines.milvus", None)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(InputError, match=r"milvus: .* is not installed; pip install 'taugate\[milvus\]'"):
        engine_from_environment("milvus", {"TAUGATE_ENGINE_URL": "http://h"})


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("milvus", "me:hunter2@host:19530"),
        ("milvus", "postgresql://me:hunter2@host/db"),
        ("milvus", "http://me:hunter2@host:port"),
        ("milvus", "http://me:hunter2@[::1"),
        ("pgvector", "http://me:hunter2@host:19530"),
        ("pgvector", "postgres//me:hunter2@host/db"),
        ("pgvector", "postgresql://me:hunter2@host/db?nonsense=1"),
    ],
)
def test_invalid_url_is_refused_unrepeated(kind: EngineKind, url: str) -> None:
    with pytest.raises(InputError, match=f"^TAUGATE_ENGINE_URL: not a URL of {kind}; write it as ") as refused:
        engine_from_environment(kind, {"TAUGATE_ENGINE_URL": url})
    assert "hunter2" not in str(refused.value)


def test_import_keeps_log_handlers() -> None:
    """Asked of a process of its own, as a module is imported once."""
    code = (
        "import logging\n"
        "from taugate.retrieval.engines.connect import connect\n"
        "class Handler(logging.Handler):\n"
        "    def close(self): print('closed')\n"
        "handler = Handler()\n"
        "connect('milvus', ['http://h']), connect('pgvector', ['postgresql://h/db'])\n"
        "assert handler in [each() for each in logging._handlerList]\n"
        "print('open', logging.config.dictConfig.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "open dictConfig"
