"""`taugate drift replay`, on logs as the service writes them and on logs that something happened to."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import taugate
from retrieval.release.catalog import find
from retrieval.release.reader import load
from tests.service_process import ServiceProcess

HOUR = 3600


@pytest.fixture(scope="module")
def release(releases: Path) -> str:
    return find(releases).name


@pytest.fixture(scope="module")
def lines(releases: Path, release: str) -> list[dict]:
    """A day of queries as at calibration, of which an hour is not, and judgements."""
    reference = load(find(releases)).reference
    rng = np.random.default_rng(0)
    records = []
    for number in range(4800):
        row = rng.integers(len(reference))
        strange = 2400 <= number < 2600
        top = reference.top[row] - (0.5 if strange else 0)
        records.append(
            {
                "at": 1e9 + number * 86400 / 4800,
                "query_id": f"q{number}",
                "query": "0" * 16,
                "kept": 0 if strange else int(reference.kept[row]),
                "topk": top.tolist(),
                "random": reference.random[rng.integers(len(reference), size=4)].tolist(),
                "release": release,
            }
        )
        if number % 10 == 0:
            judged = {"at": records[-1]["at"], "query_id": f"q{number}", "document_id": "d", "correct": float(top[0])}
            records.append(judged | {"release": release})
    return records


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_it_says_when_it_would_have_alarmed_and_draws_it(
    releases: Path, lines: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "queries.log", lines)
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    said = capsys.readouterr()
    first, *_, last = said.out.splitlines()
    assert first.startswith("2001-09-09 13:")  # noon of that day is 2,400 queries after 01:46:40
    assert "alarm" in first
    assert "over" in last
    assert "4,800 queries, 480 judgements" in said.err
    page = (tmp_path / "queries.log.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 6  # the similarities and five signals
    assert "hours since the first query" in page
    assert "<script" not in page


def test_as_json_for_scripts(
    releases: Path, lines: list[dict], release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, page = write(tmp_path / "queries.log", lines), tmp_path / "drawn.html"
    command = ["drift", "replay", str(log), "--releases", str(releases), "--json", "--page", str(page)]
    assert taugate.main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["release"], found["queries"], found["judged"], found["page"]) == (release, 4800, 480, str(page))
    alarms = [moment for moment in found["moments"] if moment["alarm"]]
    assert {moment["signal"] for moment in alarms} >= {"topk_similarity", "empty_responses"}
    assert all(2400 < moment["after"] < 2600 for moment in alarms if moment["signal"] != "coe")


def test_without_the_strange_hour_there_is_nothing(
    releases: Path, lines: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = (1e9 + number * 18 for number in (2400, 2600))
    log = write(tmp_path / "queries.log", [line for line in lines if not start <= line["at"] < end])
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "0 alarms" in said.err
    assert "every signal stayed within" in (tmp_path / "queries.log.html").read_text(encoding="utf-8")


def test_lines_of_other_releases_are_left_out_and_counted(
    releases: Path, lines: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [line | {"release": "20200101T000000Z-0123456789ab"} for line in lines[:7]]
    log = write(tmp_path / "queries.log", others + lines)
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert "7 lines of the log are of other releases" in log.with_name("queries.log.html").read_text(encoding="utf-8")
    log = write(tmp_path / "queries.log", others)
    capsys.readouterr()
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 2
    assert "all of its 7 lines are of other releases" in capsys.readouterr().err


CHANGES: dict[str, tuple[Callable[[dict], object], str]] = {
    "no time": (lambda line: {name: line[name] for name in line if name != "at"}, '"at" is no number'),
    "time as text": (lambda line: line | {"at": "noon"}, '"at" is no number'),
    "no similarities": (lambda line: line | {"topk": None}, '"topk" is no list'),
    "a similarity that is none": (lambda line: line | {"topk": [*line["topk"][:-1], "x"]}, '"topk" is no number'),
    "beyond float32": (lambda line: line | {"topk": [1e300, *line["topk"][1:]]}, '"topk" is no number'),
    "another K": (lambda line: line | {"topk": line["topk"][:3]}, "3 and 4 similarities"),
    "no random documents": (lambda line: line | {"random": []}, "5 and 0 similarities"),
    "a list": (lambda line: [1, 2], "an array, not an object"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_a_line_that_the_service_did_not_write(
    releases: Path,
    lines: list[dict],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict], dict],
    said: str,
) -> None:
    log = write(tmp_path / "queries.log", [*lines[:3], change(lines[2]), *lines[3:6]])
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 2
    error = capsys.readouterr().err
    assert f"{log}:4: " in error
    assert said in error
    assert [path.name for path in tmp_path.iterdir()] == ["queries.log"]


def test_no_log_and_no_effect(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["drift", "replay", str(tmp_path / "nothing.log"), "--releases", str(releases)]
    assert taugate.main(command) == 2
    said = capsys.readouterr().err
    assert "nothing.log: no such file; the service writes one where TAUGATE_QUERY_LOG says" in said
    assert taugate.main([*command, "--seldom", "0.5"]) == 2
    assert "--seldom more than 1" in capsys.readouterr().err


def test_the_log_of_a_real_service(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "queries.log"
    with ServiceProcess(releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        for number in range(30):
            service.http.post("/search", json={"query": f"What does permit {number} cost?"})
        service.http.post("/search", json={"query": "within", "filter": {"category": "bygglov"}})
        deadline = time.monotonic() + 20
        while not log.exists() or len(log.read_text(encoding="utf-8").splitlines()) < 30:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert "permit" not in log.read_text(encoding="utf-8")  # hashed
    assert taugate.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert "30 queries, 0 judgements" in capsys.readouterr().err
