"""`taugate quickstart` with the real encoder: what a newcomer sees."""

import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest

from taugate.cli.quickstart import _heading_of
from taugate.data.questions import off_topic_example
from tests.fork_server import forked

pytestmark = pytest.mark.model


@pytest.mark.slow
def test_quickstart_serves_printed_address(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = forked("quickstart", "--port", str(port))
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        printed = []
        for line in process.stderr:
            printed.append(line)
            if line.startswith("Open "):
                break
        try:
            assert re.search(r"^ +0\.\d{3} \w+", "".join(printed), re.MULTILINE)
            playground = printed[-1].split()[1]
            assert "<title>Taugate playground</title>" in httpx.get(playground).text
            asked = httpx.post(playground.replace("playground", "search"), json={"query": "hidden defects in a house"})
            assert asked.json()["results"]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_port_in_use_fails_before_calibration(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = forked("quickstart", "--port", str(taken.getsockname()[1]))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("taugate: cannot listen on 127.0.0.1 port")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_serve_prints_results(tmp_path: Path) -> None:
    command = forked("quickstart", "--no-serve")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    columns = [line for text in lines for line in textwrap.wrap(text, 80) or [""]] + done.stdout.splitlines()
    assert len(columns) <= 24
    (first,) = (number for number, line in enumerate(columns, 1) if line.startswith("State "))
    assert first < 12  # after the path of the release, which is on stdout
    assert [line.split()[0] for line in columns if line.startswith(("State", "Certified", "Checked", "Cut"))] == [
        *("State", "Certified", "Checked", "Cut")
    ]
    off_topic = re.escape(off_topic_example("English"))
    assert re.search(rf"^Off topic +{off_topic}\n +no result: ", done.stderr, re.MULTILINE)
    rows = dict(line.split(maxsplit=1) for line in lines if line.startswith(("Open ", "Report ")))
    assert (tmp_path / rows["Report"]).is_file()
    assert rows["Open"] == "taugate serve --releases quickstart/releases"
    assert done.stdout == f"{Path(rows['Report']).parent}\n"
    stricter = [sys.executable, "-m", *shlex.split(lines[-1])]
    assert stricter[-2:] == ["--max-loss", "0.02"]
    assert subprocess.run(stricter, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def folder_of_files(folder: Path) -> Path:
    """Write files of several kinds and languages, three of which cannot be read."""
    folder.mkdir()
    topics = ["pump", "valve", "boiler", "filter", "motor", "sensor", "heater", "compressor"]
    for number, topic in enumerate(topics):
        text = f"The {topic} of floor {number} stops when the pressure is below {number + 2} bars, and an alarm sounds."
        (folder / f"{topic}.md").write_text(f"# Manual\n\n## Care of the {topic}\n\n{text} Call the service.\n")
    (folder / "heizung.html").write_text(
        "<h1>Heizung</h1><p>Die Heizung startet im Oktober und läuft bis Ende April.</p>"
    )
    (folder / "damaged.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    for name in ("logo.png", "plan.png"):
        (folder / name).write_bytes(b"\x89PNG")
    return folder


@pytest.mark.slow
def test_folder_gives_provisional_release(tmp_path: Path) -> None:
    files = folder_of_files(tmp_path / "my manuals")
    command = forked("quickstart", files.name, "--no-serve")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "skipped: " in done.stderr
    assert "damaged.pdf" in done.stderr
    assert re.search(r"logo\.png is of a kind that is not read; .* \(and 1 more file\)\n", done.stderr)
    assert not re.search("^(warning|PROVISIONAL):", done.stderr, re.MULTILINE), "the report has them"
    assert len([row for line in done.stderr.splitlines() for row in textwrap.wrap(line, 80)]) <= 30
    assert "\nState       provisional: all 9 answerable queries were generated" in done.stderr
    assert "Next: " not in done.stderr, "only the last step has a next one"
    assert re.search(r"^Question +Care of the \w+\n +0\.\d{3} ", done.stderr, re.MULTILINE)
    assert (tmp_path / "quickstart-my manuals" / "data" / "corpus.jsonl").is_file()
    assert shlex.split(done.stderr.splitlines()[-1])[:2] == ["taugate", "judge"]
    (files / "pump.md").write_text("# Manual\n\nThe pump was replaced by a new one, which needs no care at all.\n")
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "0 added, 1 changed, 0 removed" in again.stderr


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("missing", "missing: no such file or folder"),
        ("empty", "empty: holds no file"),
        (".", "is inside .; give --directory a folder outside it"),
    ],
)
@pytest.mark.slow
def test_empty_folder_gives_one_sentence(folder: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = forked("quickstart", folder, "--no-serve")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("taugate: "))
    assert message in line
    assert [each.name for each in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("title", "question"),
    [
        ("3.2", "The pump stops below two bars."),
        ("Article 5", "The pump stops below two bars."),
        ("IV.", "The pump stops below two bars."),
        ("§ 4 Care of the pump", "Care of the pump"),
        ("3.2.1 Care of the pump", "Care of the pump"),
        ("(b) Care of the pump", "Care of the pump"),
        ("Chapter II: Care of the pump", "Care of the pump"),
        ("Manual > 12. Care of the pump", "Care of the pump"),
        ("A pump stops", "A pump stops"),
        ("Civil law", "Civil law"),
        ("Mild steel", "Mild steel"),
        (None, "The pump stops below two bars."),
    ],
)
def test_question_is_no_heading_number(title: str | None, question: str) -> None:
    assert _heading_of([(title, "The pump stops below two bars.")]) == question
