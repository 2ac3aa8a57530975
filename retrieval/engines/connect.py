"""Connecting to an engine by its kind; its client library is imported here, when it is asked for, and nowhere else."""

from collections.abc import Sequence

from taugate.retrieval.engines.engine import Engine, EngineKind


def connect(kind: EngineKind, urls: Sequence[str], secret: str = "") -> Engine:
    """Return an engine; nothing is sent to it yet.

    kind: of the engine. urls: of its servers, one or more. secret: token of Milvus, or password of PostgreSQL; empty
    for none. Raises ModuleNotFoundError where its extra is not installed, InputError for no URL.
    """
    if kind == "milvus":
        from taugate.retrieval.engines.milvus import MilvusEngine

        return MilvusEngine(urls, secret)
    from taugate.retrieval.engines.pgvector import PgvectorEngine

    return PgvectorEngine(urls, secret)
