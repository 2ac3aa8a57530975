"""An unread log stops neither requests nor probes nor shutdown, and lost lines are counted."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.service.runtime.logs import _MAX_QUEUED_LINES
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

QUERY = json.dumps({"query": "What does a building permit cost?"})
# Logs more than a pipe holds, and ends as any program does.
LOGS_AND_ENDS = """
import logging
from taugate.service.runtime.logs import configure_logging

configure_logging("info")
for number in range(3000):
    logging.getLogger("test").log(logging.WARNING if number % 100 == 99 else logging.INFO, "line %d", number)
"""


@pytest.fixture
def unread() -> Iterator[int]:
    """The write end of a pipe that nobody reads, and that is full."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ends[1], bytes(4096))
    os.set_blocking(ends[1], True)
    yield ends[1]
    for end in ends:
        os.close(end)


def ask(service: ServiceProcess, times: int) -> set[int]:
    """The status codes of so many searches on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    statuses = set()
    for _ in range(times):
        connection.request("POST", "/search", QUERY, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        statuses.add(reply.status)
    connection.close()
    return statuses


def dropped(service: ServiceProcess) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith("taugate_log_dropped_total "))
    return float(value)


def test_unread_lines_are_dropped_and_counted(releases: Path, unread: int) -> None:
    with ServiceProcess(releases, stderr=unread, forked=False) as service:
        service.ready()
        assert dropped(service) == 0
        assert ask(service, _MAX_QUEUED_LINES + 100) == {200}  # the writer holds the few lines from before
        assert dropped(service) > 0
        assert service.http.get("/livez").status_code == 200
        assert service.stop()[0] == 0


def test_workers_do_not_wait_for_reader(releases: Path, unread: int) -> None:
    with ServiceProcess(releases, stderr=unread, forked=False, TAUGATE_WORKERS="2") as service:
        service.ready()
        for _ in range(8):  # connections, so that both of them are asked
            assert ask(service, 50) == {200}
        assert service.http.get("/livez").status_code == 200
        assert service.stop()[0] == 0


def test_lines_are_whole_and_ordered() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_AND_ENDS], capture_output=True, check=True, timeout=30)
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == [f"line {row}" for row in range(3000)]


def test_program_with_unread_log_ends(unread: int) -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_AND_ENDS], stderr=unread, check=False, timeout=30)
    assert done.returncode == 0


def test_program_without_stderr_writes_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "file"
    opened = f"import os; assert os.open({str(victim)!r}, os.O_CREAT | os.O_RDWR) == 2\n"
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, opened + LOGS_AND_ENDS]
    assert subprocess.run(command, check=False, timeout=30).returncode == 0
    assert victim.read_bytes() == b""


def test_nonblocking_stderr_gets_every_line() -> None:
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with subprocess.Popen([sys.executable, "-c", LOGS_AND_ENDS], stderr=ends[1]), os.fdopen(ends[0], "rb") as read:
        os.close(ends[1])
        lines = read.read().splitlines()
    assert [json.loads(line)["message"] for line in lines] == [f"line {row}" for row in range(3000)]
