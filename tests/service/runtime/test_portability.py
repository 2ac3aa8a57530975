"""What only Linux has is optional: the service runs as on macOS if it is hidden."""

import os
import sys
from pathlib import Path

import pytest

from taugate.registry.download import private_folder
from taugate.retrieval.hardware import processors
from taugate.service.runtime.resources import allocate_file
from tests.service_process import ServiceProcess

_HIDE = """
import os
for name in ("posix_fallocate", "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
"""


def test_allocated_file_without_fallocate_has_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"kept")
        file.flush()
        allocate_file(file.fileno(), 3 << 20)
        assert os.fstat(file.fileno()).st_size == 3 << 20
        file.seek(0)
        assert file.read(6) == b"kept\0\0"


def test_private_folder_without_proc_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with private_folder(tmp_path / "private") as path:
        assert path == (tmp_path / "private").resolve()


def test_processors_without_affinity_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() >= 1


def test_service_without_linux_calls_answers(releases: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HIDE)
    with ServiceProcess(releases, forked=False, PYTHONPATH=str(tmp_path)) as service:
        service.ready()
        assert service.http.post("/search", json={"query": "Do I need a permit?"}).json()["considered"] == 5
