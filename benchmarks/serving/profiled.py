"""`taugate serve` with a clock at the doors of each stage, for one query at a time; PROFILE names the file of times.

At its end it writes, for each request, the seconds of every stage: [{"search and cut": …, …}, …]. A mark takes .2 µs.
"""

import atexit
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from starlette.types import Receive, Scope, Send

from taugate.cli import main as cli
from taugate.retrieval.retriever import Retriever
from taugate.service.api.request_context import RequestContext
from taugate.service.pipeline import search
from taugate.service.pipeline.queue import QueryQueue
from taugate.service.pipeline.reply import CachedSearch, Reply, SearchTask
from taugate.service.pipeline.search import SearchPipeline

Marks = list[tuple[str, float]]
Owner = type | ModuleType
_requests: list[Marks] = []


def _mark(name: str) -> None:
    if _requests:
        _requests[-1].append((name, time.perf_counter()))


def _at_start(owner: Owner, method: str, ends: str) -> None:
    """The stage `ends` is over when the method begins."""
    _around(owner, method, lambda: _mark(ends), lambda: None)


def _at_end(owner: Owner, method: str, ends: str) -> None:
    """The stage `ends` is over when the method returns."""
    _around(owner, method, lambda: None, lambda: _mark(ends))


def _around(owner: Owner, method: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    inner = getattr(owner, method)
    plain = inner.__func__ if isinstance(owner.__dict__.get(method), classmethod) else inner

    def timed(*given: object, **named: object) -> object:
        before()
        result = plain(*given, **named)
        after()
        return result

    setattr(owner, method, classmethod(timed) if plain is not inner else timed)


async def _whole(self: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http" or scope["path"] != "/search":
        await _call(self, scope, receive, send)
        return
    _requests.append([("", time.perf_counter())])
    await _call(self, scope, receive, send)
    _mark("send, log, metrics")


def _write() -> None:
    requests = []
    for marks in _requests:
        stages: dict[str, float] = {}
        for (_, began), (name, ended) in itertools.pairwise(marks):
            stages[name] = stages.get(name, 0.0) + ended - began
        requests.append(stages)
    Path(os.environ["PROFILE"]).write_text(json.dumps(requests))


def _remembered(self: CachedSearch, task: SearchTask) -> Reply | None:
    reply = _look_up(self, task)
    if reply is not None:
        _mark("cache")
    return reply


_call = RequestContext.__call__
RequestContext.__call__ = _whole  # type: ignore[method-assign]
_look_up = CachedSearch.remembered
CachedSearch.remembered = _remembered  # type: ignore[method-assign]
_at_start(CachedSearch, "task", "routes, validation")
_at_start(QueryQueue, "put", "cache key, admission, single flight")
_at_start(SearchPipeline, "_tokenize", "to a thread")
_at_end(SearchPipeline, "_tokenize", "tokens")
_at_start(Retriever, "embed", "batch")
_at_end(Retriever, "embed", "encode")
_at_start(Retriever, "answer", "batch")
_at_end(Retriever, "answer", "search and cut")
_at_start(search, "deliver", "documents")
_at_start(Reply, "build", "back to the event loop")
_at_end(Reply, "build", "reply")
atexit.register(_write)

if __name__ == "__main__":
    sys.exit(cli.main())
