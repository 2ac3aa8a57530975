"""Disks that are full, or cannot be written to, under a service: requests go on, and what could not be is said."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson

from taugate.registry.catalog import find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import load
from taugate.service.drift.query_log import QueryLog, ServedReply
from taugate.service.process.workers import reserve_metric_files
from tests.faults.disks import fill, read_only, small_disk
from tests.faults.load import NOT_CACHED, Load, answers
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.process.test_workers import pids
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess


def test_the_query_log(releases: Path, tmp_path: Path) -> None:
    """/dev/full takes no byte, and may be opened."""
    (tmp_path / "log").symlink_to("/dev/full")
    with ServiceProcess(releases, TAUGATE_QUERY_LOG=str(tmp_path / "log"), **NOT_CACHED) as service:
        service.ready()
        with Load(service.port, answers(service)) as load:
            until(lambda: "the query log cannot be written" in service.log())
            load.goes_on()
        assert not load.wrong
        assert not load.broken
        code, log = service.stop()
    assert code == 0
    assert log.count("the query log cannot be written") == 1
    assert "No space left on device" in log


def seen(count: int) -> list[ServedReply]:
    observed = np.ones(10, np.float32).tobytes()
    return [ServedReply(float(row), f"id{row}", Query("a query", 5), None, observed, b"", b"") for row in range(count)]


def test_no_half_line_is_left_in_it(releases: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        log = QueryLog(disk / "log.jsonl", load(find(releases)), texts=False)
        log.write(seen(10), [])
        ballast = fill(disk, leave=8192)
        log.write(seen(1000), [])
        assert len((disk / "log.jsonl").read_bytes().splitlines()) == 10
        ballast.unlink()
        log.write(seen(20), [])
        lines = (disk / "log.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["query_id"] for line in lines] == [f"id{row}" for row in (*range(10), *range(20))]


def test_a_line_whose_writer_was_killed_spoils_no_other(releases: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"at": 1.0, "que')
    QueryLog(path, load(find(releases)), texts=False).write(seen(1), [])
    torn, whole = path.read_bytes().splitlines()
    assert torn == b'{"at": 1.0, "que'
    assert orjson.loads(whole)["query_id"] == "id0"


def test_the_folder_of_the_workers(releases: Path, tmp_path: Path) -> None:
    """It was SIGBUS once: a page of a mapped file that the disk has no room for."""
    with small_disk(tmp_path / "disk", 5 * 1024) as disk:
        settings = {"TAUGATE_WORKERS": "2", "TMPDIR": str(disk), **NOT_CACHED}
        with ServiceProcess(releases, **settings) as service:
            service.ready()
            until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') == 2)
            for path in ("/search", "/nope", "/metrics", "/release"):
                service.http.post(path, json={"query": "permit"})
            assert holes(disk) == []
            ballast = fill(disk)
            alive = pids(service)
            with Load(service.port, answers(service)) as load:
                for number in range(20):
                    service.http.post("/search", json={"query": f"permit {number}"}).raise_for_status()
                    service.http.get(f"/{number}")
                assert scrape(service)["taugate_requests_total{/search,200}"] > 20
                assert pids(service) == alive
                assert not load.broken
                os.kill(alive[0], signal.SIGKILL)
                until(lambda: "no space for the workers' metrics" in service.log())
                until(lambda: "a worker could not start" in service.log())
                assert len([*disk.glob("taugate-workers-*/*.db")]) == 6 + 2  # its own, and what the dead one counted
                load.goes_on()
            assert not load.wrong
            ballast.unlink()
            until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') > 2)
            code, log = service.stop()
        assert code == 0
        assert "Traceback" not in log
        assert list(disk.glob("taugate-*")) == []


def holes(disk: Path) -> list[str]:
    """Files of workers that the disk has not all of, of which there are six a worker."""
    files = [*disk.glob("taugate-workers-*/*.db")]
    assert len(files) == 12
    return [path.name for path in files if path.stat().st_blocks * 512 < path.stat().st_size]


def test_a_worker_without_room_says_so(tmp_path: Path) -> None:
    """Also where nothing may be mounted: the kernel refuses every byte beyond a size."""
    module = reserve_metric_files.__module__
    program = f"from pathlib import Path; from {module} import reserve_metric_files as make; make(Path('{tmp_path}'))"
    done = subprocess.run(
        ["prlimit", "--fsize=100000", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no space for the workers' metrics" in done.stderr
    reserve_metric_files(tmp_path)
    for path in tmp_path.glob(f"*_{os.getpid()}.db"):
        assert path.stat().st_blocks * 512 >= path.stat().st_size > 0


def test_releases_that_the_service_may_not_write_to(two: Two, tmp_path: Path) -> None:
    """On a disk that is full besides: a promotion elsewhere is followed, and what is open stays."""
    (tmp_path / "tmp").symlink_to("/proc/self")  # where nobody can write either
    with read_only(two.folder, tmp_path / "mounted") as mounted:
        with ServiceProcess(mounted, TMPDIR=str(tmp_path / "tmp"), **NOT_CACHED) as service:
            service.ready()
            with Load(service.port, answers(service)) as load:
                load.goes_on()
            assert not load.wrong
            promote(two.folder, two.new)
            promote(two.folder, two.old)
            promote(two.folder, two.new)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.http.get("/readyz").json()["release"] == two.new)
            assert service.http.post("/search", json={"query": "permit"}).json()["release"] == two.new
            promote(two.folder, two.old)
            (two.folder / "history.jsonl").unlink()
            kept = {outcome.name: outcome.kept for outcome in prune(two.folder, 0)}
            assert str(kept[two.new]).startswith("a service has it open")
            assert service.stop()[0] == 0
        assert release_ids(two.folder) == sorted([two.old, two.new])


def test_a_reload_on_a_full_disk(two: Two, tmp_path: Path) -> None:
    """To load a release takes no byte of any disk."""
    size = sum(path.stat().st_size for path in two.folder.rglob("*"))
    with small_disk(tmp_path / "disk", 2 * (size >> 10) + 256) as disk:
        own = shutil.copytree(two.folder, disk / "releases")
        with ServiceProcess(own, TMPDIR=str(disk), **NOT_CACHED) as service:
            service.ready()
            promote(own, two.new)
            fill(disk)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.http.get("/readyz").json()["release"] == two.new)
            assert find(own).name == two.new
            assert service.stop()[0] == 0
