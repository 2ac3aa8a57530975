"""`taugate quickstart` with the real encoder: what a newcomer sees."""

import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.ingestion.dataset.beir import off_topic_questions

pytestmark = pytest.mark.model


def test_it_serves_and_its_curl_line_works(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "taugate", "quickstart", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("curl "):
                break
        try:
            text = "".join(printed)
            assert re.search(r"→ 0\.\d{3} \w+", text)
            assert "of 20 questions about something else get no result" in text
            reply = subprocess.run(shlex.split(printed[-1]), capture_output=True, text=True, check=True).stdout
            assert '"results":[{"id":' in reply
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_a_port_in_use_is_found_out_before_the_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "taugate", "quickstart", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("taugate: cannot listen on 127.0.0.1 port")
    assert list(tmp_path.iterdir()) == []


def test_it_answers_without_serving(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "taugate", "quickstart", "--no-serve"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.search(r"→ 0\.\d{3} .*liable", done.stdout)
    assert "results kept" in done.stderr
    assert re.search(r"^(\d|1\d|20) of 20 questions about something else get no result", done.stdout, re.MULTILINE)
    off_topic = off_topic_questions()
    assert len(off_topic) == 20
    assert f"A question about something else:\n{off_topic[0]}\n→ " in done.stdout
    (report,) = (line for line in done.stdout.splitlines() if line.endswith("report.html"))
    assert (tmp_path / report).is_file()
    commands = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("taugate ")]
    assert [words[1] for words in commands] == ["calibrate", "serve"]
    stricter = [sys.executable, "-m", *commands[0]]
    assert subprocess.run(stricter, cwd=tmp_path, capture_output=True, check=False).returncode == 0
