"""Errors of URLs and of missing clients; importing a client leaves the logs of the process alone."""

import subprocess
import sys

import pytest

from taugate.errors import InputError
from taugate.release.engine import EngineKind
from taugate.retrieval.engines.engine import engine_from_environment


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "taugate_engines.milvus", raising=False)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(
        InputError, match=r"^milvus: pymilvus is not installed; pip install 'taugate-engines\[milvus\]'"
    ):
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
        "from taugate.retrieval.engines.engine import connect\n"
        "class Handler(logging.Handler):\n"
        "    def close(self): print('closed')\n"
        "handler = Handler()\n"
        "connect('milvus', ['http://h']), connect('pgvector', ['postgresql://h/db'])\n"
        "assert handler in [each() for each in logging._handlerList]\n"
        "print('open', logging.config.dictConfig.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "open dictConfig"
