"""What an upload leaves behind where it cannot be finished, and what it never touches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration import engines
from taugate.calibration.engines import ensure_uploaded
from taugate.calibration.progress import Job
from taugate.errors import EngineUnavailable, ReleaseError, TaugateError
from taugate.release.engine import EngineRecord
from taugate.retrieval.engines.engine import Rows

RECORD = EngineRecord(kind="milvus", rows=2, dimension=4, shards=("a",), sample="b")
Fault = Callable[..., Any]


class Fake:
    """An engine without collections, one of whose methods fails; keeps the names of those that were called."""

    kind = "milvus"

    def __init__(self, method: str, error: Exception) -> None:
        self.called: list[str] = []
        self._method, self._error = method, error

    def __getattr__(self, method: str) -> Fault:
        def answer(*_: object) -> Any:
            self.called.append(method)
            if method == self._method:
                raise self._error
            return []

        return answer


def uploaded(engine: Fake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rows = Rows(np.zeros((2, 4), dtype=np.float32), [])
    monkeypatch.setattr(engines, "corpus_rows", lambda spool, vectors: iter([(0, rows)]))
    with pytest.raises(TaugateError):
        ensure_uploaded(engine, RECORD, Path(), None, Job(print))  # type: ignore[arg-type]
    return engine.called


def test_concurrent_upload_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake("create", ReleaseError("the engine already has a collection")), monkeypatch)
    assert called == ["names", "create"]


@pytest.mark.parametrize("method", ["upload", "finish"])
def test_unfinished_upload_is_dropped(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake(method, EngineUnavailable("away")), monkeypatch)
    assert called[-2:] == [method, "drop"]


def test_finished_unverified_upload_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    called = uploaded(Fake("collection", EngineUnavailable("away")), monkeypatch)
    assert called == ["names", "create", "upload", "finish", "collection"]
