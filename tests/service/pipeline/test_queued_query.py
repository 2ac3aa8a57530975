"""The entries of the queues."""

import ast
import asyncio
import inspect
from dataclasses import FrozenInstanceError

import pytest

from taugate.retrieval.query import Query
from taugate.service.pipeline import queue


async def _queued() -> queue.QueuedQuery:
    return queue.QueuedQuery(Query("a", 1), None, lambda *_: None)  # type: ignore[arg-type, return-value]  # not called


def test_queued_query_cannot_be_changed() -> None:
    queued = asyncio.run(_queued())
    with pytest.raises(FrozenInstanceError):
        queued.vector = None  # type: ignore[misc]


def test_queues_know_no_reply_form() -> None:
    imported = [
        (getattr(node, "module", ""), name.name)
        for node in ast.walk(ast.parse(inspect.getsource(queue)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]
    ours = [name for name in imported if "taugate.service.pipeline" in ".".join(name)]
    assert ours == [("taugate.service.pipeline.record", "SearchRecord")]
