"""The entry points of Milvus and PostgreSQL; their clients are imported here only, at the first connection."""

import logging.config
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from taugate.retrieval.engines.engine import Engine

_importing = threading.Lock()


def milvus(urls: Sequence[str], secret: str) -> Engine:
    """Return Milvus servers; the secret is their token."""
    with _logging_kept():
        from taugate_engines.milvus import MilvusEngine

    return MilvusEngine(urls, secret)


def pgvector(urls: Sequence[str], secret: str) -> Engine:
    """Return PostgreSQL servers; the secret is the password."""
    from taugate_engines.pgvector import PgvectorEngine

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
