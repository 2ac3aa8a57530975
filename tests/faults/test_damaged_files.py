"""Files of a release that change in place: a damaged release is never loaded; a loaded one may end the process."""

import os
import random
import shutil
import signal
from pathlib import Path

import httpx
import pytest

from taugate.registry.promotion import promote, rollback
from taugate.release.layout import MANIFEST
from tests.faults.load import NOT_CACHED, Load, answers
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

MAPPED = ("index.faiss", "documents.jsonl")


def damage(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    how = rng.choice(["cut", "flip", "empty", "gone", "folder"])
    if how == "cut":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif how == "flip":
        place = rng.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()


@pytest.mark.slow
def test_damaged_file_is_not_loaded(two: Two, tmp_path: Path, rng: random.Random, rounds: int) -> None:
    """The loaded release keeps serving, and the repaired one is loaded in the end."""
    whole = shutil.copytree(two.folder / two.new, tmp_path / "whole")
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    (two.folder / "current").write_text(f"{two.old}\n")
    with ServiceProcess(two.folder, **NOT_CACHED) as service:
        with Load(service.ready().port, answers(service)) as load:
            (two.folder / "current").write_text(f"{two.new}\n")
            for number, name in enumerate(names * rounds, 1):
                damage(two.folder / two.new / name, rng)
                service.process.send_signal(signal.SIGHUP)
                until(lambda number=number: scrape(service)["taugate_reloads_total{failed}"] == number)
                shutil.rmtree(two.folder / two.new)
                shutil.copytree(whole, two.folder / two.new)
            assert service.http.get("/readyz").json()["release"] == two.old
            load.wait_for_answers()
        assert not load.incorrect
        assert not load.broken
        service.process.send_signal(signal.SIGHUP)
        until(lambda: service.http.get("/readyz").json()["release"] == two.new)
        code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log
    reasons = [line for line in log.splitlines() if "keeping the previous one" in line]
    for name, said in zip(names * rounds, reasons, strict=True):
        assert name in said or (name == MANIFEST and two.new in said)  # without one it is no release


@pytest.mark.slow
def test_loaded_release_survives_damaged_files(two: Two, rng: random.Random) -> None:
    """A mapped file that is cut short ends the process at the next search (SIGBUS); it serves again after a rollback.

    Nothing cheap prevents it: a release is never changed in place.
    """
    promote(two.folder, two.new)
    name = rng.choice(MAPPED)
    with ServiceProcess(two.folder, **NOT_CACHED) as service:
        service.ready()
        os.truncate(two.folder / two.new / name, 10)
        try:
            reply = service.http.post("/search", json={"query": "permit", "threshold": -2})
            raise AssertionError(f"answered from a file that is not there: {reply.text}")
        except httpx.TransportError:
            assert service.process.wait(30) == -signal.SIGBUS
    with ServiceProcess(two.folder, service.port) as service:
        assert service.process.wait(60) == 2
        assert name in service.log()
    assert rollback(two.folder) == two.old
    with ServiceProcess(two.folder, service.port) as service:
        assert service.ready().http.post("/search", json={"query": "permit"}).json()["release"] == two.old


@pytest.mark.slow
def test_replaced_files_leave_loaded_release_intact(two: Two) -> None:
    """rsync, package managers and `mv` replace files by name: processes keep the old, mapped file."""
    with ServiceProcess(two.folder, **NOT_CACHED) as service:
        with Load(service.ready().port, answers(service)) as load:
            for name in MAPPED:
                (two.folder / ".partial").write_bytes(b"something else")
                (two.folder / ".partial").replace(two.folder / two.old / name)
            load.wait_for_answers()
            shutil.rmtree(two.folder / two.old)
            load.wait_for_answers()
        assert not load.incorrect
        assert not load.broken
