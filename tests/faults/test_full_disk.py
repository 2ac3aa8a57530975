"""Full and read-only disks: one line of error from a command, and a service that continues."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from taugate.release.verify import verify
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.service.drift.query_log import QueryLog, ServedReply
from taugate.service.runtime.resources import reserve_metric_files
from tests.calibration.commands import arguments
from tests.faults.disks import fill, read_only, small_disk
from tests.faults.load import NOT_CACHED, Load, answers
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.drift.traffic import FastDriftService
from tests.service.process.test_workers import pids
from tests.service.records import record
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

PAGE = os.sysconf("SC_PAGE_SIZE")


def kilobytes(folder: Path) -> int:
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // PAGE) for size in sizes) * PAGE >> 10


def refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Return the last line of a command that failed to write."""
    capfd.readouterr()
    assert cli.main(command) in {1, 2}
    said = capfd.readouterr().err
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("taugate: ")
    return last


@pytest.mark.slow
def test_calibration_on_full_disk(
    releases: Path, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The disk is full in the encoder, the index, the manifest, or just before the history and the pointer."""
    total = kilobytes(releases)
    for number, free in enumerate((total // 10, total // 2, total - 8, total + 4)):
        with small_disk(tmp_path / f"disk{number}", 2 * total + 4 * 1024) as disk:
            own = shutil.copytree(releases, disk / "releases")
            fill(disk, leave=free << 10)
            before = sorted(path.name for path in own.iterdir() if path.name != ".lock")
            command = arguments(sample, own, encoder, "--seed", str(number + 1))
            capfd.readouterr()
            code = cli.main(command)
            said = capfd.readouterr().err
            assert "Traceback" not in said
            if code:
                assert said.splitlines()[-1].startswith("taugate: ")
                assert "No space left" in said
            left = sorted(path.name for path in own.iterdir() if path.name not in {".lock", *release_ids(own)})
            assert left == sorted({*before} - {*release_ids(own)})
            for name in release_ids(own):
                verify(own / name)
            assert current_id(own) == current_id(releases) or not code
            (disk / ".ballast").unlink()
            assert cli.main(arguments(sample, own, encoder, "--seed", "9")) == 0


def test_promotion_on_full_disk(two: Two, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The disk has no space for the pointer after the line of the history, then none for that line either."""
    with small_disk(tmp_path / "disk", 2 * kilobytes(two.folder) + 64) as disk:
        own = shutil.copytree(two.folder, disk / "releases")
        ballast = fill(disk)
        for _ in range(2):
            for command in (["promote", two.new], ["shadow", two.new]):
                said = refused(["release", *command, "--releases", str(own)], capfd)
                assert "No space left" in said or "full" in said
            assert current_id(own) == two.old
            assert not (own / "shadow").exists()
            assert not list(own.glob(".*.new"))
            past = own / "history.jsonl"
            lines = past.read_bytes()
            past.write_bytes(lines.ljust(-(-len(lines) // PAGE) * PAGE, b"\n"))
        ballast.unlink()
        promote(own, two.new)
        assert history.read(own).unreadable == []
        assert history.read(own).events[-1].release == two.new
        promote(own, two.old)
        past.unlink()  # so that no rollback needs the other release
        fill(disk)
        assert [each.name for each in prune(own, 0) if each.kept is None] == [two.new]


def test_promotion_beyond_size_limit(two: Two) -> None:
    """A limit of the file size stands for a full disk, so that no mount is needed."""
    command = ["prlimit", "--fsize=16", sys.executable, "-m", "taugate", "release", "promote", two.new]
    done = subprocess.run(
        [*command, "--releases", str(two.folder)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert done.stderr.startswith("taugate: ")
    assert len(done.stderr.splitlines()) == 1
    assert "nothing was changed" in done.stderr
    assert current_id(two.folder) == two.old
    promote(two.folder, two.new)
    assert history.read(two.folder).events[-1].release == two.new


@pytest.mark.slow
def test_query_log_on_full_disk(releases: Path, tmp_path: Path) -> None:
    """/dev/full can be opened, and refuses every byte."""
    (tmp_path / "log").symlink_to("/dev/full")
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(tmp_path / "log"), **NOT_CACHED) as service:
        service.ready()
        with Load(service.port, answers(service)) as load:
            until(lambda: "cannot write the query log" in service.log())
            load.wait_for_answers()
        assert not load.incorrect
        assert not load.broken
        code, log = service.stop()
    assert code == 0
    assert log.count("cannot write the query log") == 1
    assert "No space left on device" in log


def seen(count: int) -> list[ServedReply]:
    answered = record([1.0] * 9, kept=1)
    return [ServedReply(float(row), f"id{row}", Query("a query", 5), None, answered) for row in range(count)]


@pytest.mark.slow
def test_failed_write_leaves_no_partial_line(releases: Path, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_partial_line_of_killed_writer_is_isolated(releases: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"at": 1.0, "que')
    QueryLog(path, load(find(releases)), texts=False).write(seen(1), [])
    partial, complete = path.read_bytes().splitlines()
    assert partial == b'{"at": 1.0, "que'
    assert orjson.loads(complete)["query_id"] == "id0"


@pytest.mark.slow
def test_shared_folder_on_full_disk(releases: Path, tmp_path: Path) -> None:
    """A page of a mapped file that does not fit on the disk must not end the process (SIGBUS)."""
    with small_disk(tmp_path / "disk", 5 * 1024) as disk:
        settings = {"TAUGATE_WORKERS": "2", "TMPDIR": str(disk), **NOT_CACHED}
        with ServiceProcess(releases, forked=False, **settings) as service:
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
                until(lambda: "worker failed to start" in service.log())
                assert (
                    len([*disk.glob("taugate-workers-*/*.db")]) == 6 + 2
                )  # files of the living worker, and the counts of the killed one
                load.wait_for_answers()
            assert not load.incorrect
            ballast.unlink()
            until(lambda: len(pids(service)) == 2 and service.log().count('"ready"') > 2)
            code, log = service.stop()
        assert code == 0
        assert "Traceback" not in log
        assert list(disk.glob("taugate-*")) == []


def holes(disk: Path) -> list[str]:
    """Return files of workers with unallocated blocks; each worker has six files."""
    files = [*disk.glob("taugate-workers-*/*.db")]
    assert len(files) == 12
    return [path.name for path in files if path.stat().st_blocks * 512 < path.stat().st_size]


@pytest.mark.slow
def test_worker_on_full_disk_logs_reason(tmp_path: Path) -> None:
    """A limit of the file size stands for a full disk, so that no mount is needed."""
    module = reserve_metric_files.__module__
    program = f"from pathlib import Path; from {module} import reserve_metric_files as make; make(Path('{tmp_path}'))"
    done = subprocess.run(
        ["prlimit", "--fsize=100000", sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "no space for the workers' metrics" in done.stderr
    reserve_metric_files(tmp_path)
    for path in tmp_path.glob(f"*_{os.getpid()}.db"):
        assert path.stat().st_blocks * 512 >= path.stat().st_size > 0


@pytest.mark.slow
def test_service_reads_from_read_only_releases(two: Two, tmp_path: Path) -> None:
    """The temporary folder is not writable either; the service follows a promotion, and open releases are kept."""
    (tmp_path / "tmp").symlink_to("/proc/self")  # not writable
    with read_only(two.folder, tmp_path / "mounted") as mounted:
        with ServiceProcess(mounted, TMPDIR=str(tmp_path / "tmp"), **NOT_CACHED) as service:
            service.ready()
            with Load(service.port, answers(service)) as load:
                load.wait_for_answers()
            assert not load.incorrect
            promote(two.folder, two.new)
            promote(two.folder, two.old)
            promote(two.folder, two.new)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.http.get("/readyz").json()["release"] == two.new)
            assert service.http.post("/search", json={"query": "permit"}).json()["release"] == two.new
            promote(two.folder, two.old)
            (two.folder / "history.jsonl").unlink()
            kept = {outcome.name: outcome.kept for outcome in prune(two.folder, 0)}
            assert str(kept[two.new]).startswith("open in a service")
            assert service.stop()[0] == 0
        assert release_ids(two.folder) == sorted([two.old, two.new])


@pytest.mark.slow
def test_reload_on_full_disk(two: Two, tmp_path: Path) -> None:
    """Loading a release needs no disk space."""
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
