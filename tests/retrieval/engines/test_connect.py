"""The engine that the environment names, and the errors if it names none."""

from pathlib import Path

import pytest

from taugate import plugins
from taugate.errors import InputError
from taugate.retrieval.engines import engine
from taugate.retrieval.engines.engine import engine_from_environment


def test_urls_and_secret_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[list[str], str]] = []
    monkeypatch.setattr(engine, "load_one", lambda group, name: lambda urls, secret: made.append((urls, secret)))
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


def test_missing_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "provided", lambda group: {})
    environ = {"TAUGATE_ENGINE_URL": "http://h"}
    for kind, message in (
        ("milvus", "milvus is not installed: it is in the plug-in taugate-engines"),
        ("foo", "foo is not installed; the installed plug-ins have none"),
    ):
        with pytest.raises(InputError, match=message):
            engine_from_environment(kind, environ)
