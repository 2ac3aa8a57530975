"""Connects to an engine by its kind. This is the only module that imports its client library, and only when needed."""

import logging.config
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError
from taugate.retrieval.engines.engine import Engine, EngineKind
from taugate.storage.secrets import read_secret

URL, TOKEN_FILE = "TAUGATE_ENGINE_URL", "TAUGATE_ENGINE_TOKEN_FILE"
_importing = threading.Lock()


def engine_from_environment(kind: EngineKind, environ: Mapping[str, str] = os.environ) -> Engine:
    """Return the engine that the environment names; every command and the service use this function.

    Args:
        kind: Kind of the engine.
        environ: Environment variables. URL has one or more URLs, separated by commas; TOKEN_FILE may name a file.

    Raises:
        InputError: See `engine_at`.
    """
    token_file = environ.get(TOKEN_FILE)
    return engine_at(kind, environ.get(URL, ""), Path(token_file) if token_file else None)


def engine_at(kind: EngineKind, urls: str, token_file: Path | None) -> Engine:
    """Return the engine at these URLs; nothing is sent to it yet.

    Args:
        kind: Kind of the engine.
        urls: URLs of its servers, separated by commas.
        token_file: File with the token of Milvus or the password of PostgreSQL; None if there is none.

    Raises:
        InputError: If there is no URL, the file cannot be read, or the extra of this kind is not installed.
    """
    servers = [url.strip() for url in urls.split(",") if url.strip()]
    if not servers:
        raise InputError(f"{URL} is not set, and the vectors are in {kind}; set it to the URL of the engine")
    try:
        return connect(kind, servers, "" if token_file is None else read_secret(token_file, TOKEN_FILE))
    except ModuleNotFoundError as error:
        raise InputError(f"{kind}: {error.name} is not installed; pip install 'taugate[{kind}]'") from error


def connect(kind: EngineKind, urls: Sequence[str], secret: str = "") -> Engine:
    """Return an engine; nothing is sent to it yet.

    Args:
        kind: Kind of the engine.
        urls: One or more URLs of its servers.
        secret: Token of Milvus or password of PostgreSQL; empty if there is none.

    Raises:
        ModuleNotFoundError: If its extra is not installed.
        InputError: If there is no URL.
    """
    if kind == "milvus":
        with _logging_kept():
            from taugate.retrieval.engines.milvus import MilvusEngine

        return MilvusEngine(urls, secret)
    from taugate.retrieval.engines.pgvector import PgvectorEngine

    return PgvectorEngine(urls, secret)


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Block logging configuration: importing pymilvus configures logging, which closes all handlers of the process."""
    with _importing:
        configure = logging.config.dictConfig
        logging.config.dictConfig = lambda config: None
        try:
            yield
        finally:
            logging.config.dictConfig = configure
