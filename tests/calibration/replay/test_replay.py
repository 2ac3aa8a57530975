"""`taugate drift replay`: what would have alarmed, when, and after how many queries."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.calibration.replay.conftest import Command
from tests.calibration.replay.records import START, Service, write
from tests.service.drift.traffic import FastDriftService


def test_replay_prints_alarms(
    releases: Path, lines: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "queries.log", lines)
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    said = capsys.readouterr()
    first, *_, last = said.out.splitlines()
    # 2,400 queries of 18 s after 01:46:40 it is 13:46:40, and an alarm takes 200 more or somewhat more.
    assert re.fullmatch(r"2001-09-09 1[45]:\d\d:\d\d UTC  empty_responses   alarm  after 2,[67]\d\d", first)
    assert "over" in last
    assert "4,800 queries, 480 judgements, 24 blocks: " in said.err


def test_replay_json_output(lines: list[dict], service: Service, tmp_path: Path, replayed: Command) -> None:
    found = replayed(write(tmp_path / "queries.log", lines))
    assert list(found) == ["release", "queries", "judged", "blocks", "baseline", "moments", "questions"]
    assert (found["release"], found["queries"], found["judged"]) == (service.release, 4800, 480)
    assert (found["blocks"], found["baseline"]) == (24, False)
    alarms = {moment["signal"]: moment["after"] for moment in found["moments"] if moment["alarm"]}
    assert {*alarms} == {"topk_similarity", "empty_responses", "dropped_share"}
    assert all(2400 < after < 2900 for after in alarms.values())
    over = {moment["signal"]: moment["after"] for moment in found["moments"] if not moment["alarm"]}
    assert {*over} == {*alarms}
    assert all(3000 < after <= 4200 for after in over.values())


def test_unchanged_traffic_raises_no_alarm(
    releases: Path, lines: list[dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = (START + number * 18 for number in (2400, 3000))
    log = write(tmp_path / "queries.log", [line for line in lines if not start <= line["at"] < end])
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "0 alarms" in said.err


def test_repeated_query_is_no_drift(service: Service, tmp_path: Path, replayed: Command) -> None:
    times = [START + second for second in range(8000)]
    queries = [
        *service.queries(times[:2000]),
        *service.queries(times[2000:7000], off=0.5, query="the same again"),
        *service.queries(times[7000:]),
    ]
    log = write(tmp_path / "queries.log", queries)
    found = replayed(log)
    assert found["moments"] == []
    assert (found["queries"], found["blocks"]) == (8000, 15)  # 3,001 different ones


def test_rotated_logs_are_one_log(lines: list[dict], tmp_path: Path, replayed: Command) -> None:
    whole = replayed(write(tmp_path / "queries.log", lines))
    names = ("q.log", "q.log.1", "q.log.2")
    parts = [write(tmp_path / name, lines[2 - place :: 3]) for place, name in enumerate(names)]
    assert replayed(*parts) == whole


def test_non_log_files_are_rejected(lines: list[dict], tmp_path: Path, refused: Callable[..., str]) -> None:
    log = write(tmp_path / "queries.log", lines[:10])
    assert "named twice" in refused("replay", log, log)
    assert "unpack it with gunzip" in refused("replay", log, log.with_name("queries.log.2.gz"))
    page = log.with_name("queries.log.html")
    page.touch()
    assert "not a log" in refused("replay", log, page)


def test_replay_options_change_alarms(lines: list[dict], tmp_path: Path, replayed: Command) -> None:
    log = write(tmp_path / "queries.log", lines)
    assert replayed(log, "--block", "400")["blocks"] == 12
    assert replayed(log, "--block", "auto")["moments"]
    assert replayed(log, "--smallest-effect", "1")["moments"] != replayed(log)["moments"]
    first, sooner = replayed(log)["moments"][0]["after"], replayed(log, "--seldom", "1e3")["moments"][0]["after"]
    assert sooner < first
    assert replayed(log, "--average-run-length", "1e3")["moments"][0]["after"] == sooner


def test_invalid_replay_options_are_rejected(lines: list[dict], tmp_path: Path, refused: Callable[..., str]) -> None:
    log = write(tmp_path / "queries.log", lines[:10])
    assert "--average-run-length must be more than 200" in refused("replay", log, "--seldom", "150")
    assert "--average-run-length must be more than 25," in refused("replay", log, "--seldom", "nan", "--block", "25")
    assert "--smallest-effect must be from 0 to 1" in refused("replay", log, "--smallest-effect", "-1")
    for block in ("24", "10001", "many", "-200", "9" * 5000):
        assert "--block must be auto, or from 25 to 10000" in refused("replay", log, "--block", block)


def test_lines_of_other_releases_are_counted(
    lines: list[dict], tmp_path: Path, replayed: Command, refused: Callable[..., str]
) -> None:
    others = [line | {"release": "20200101T000000Z-0123456789ab"} for line in lines[:7]]
    log = write(tmp_path / "queries.log", others + lines)
    assert replayed(log)["queries"] == 4800
    log = write(tmp_path / "others.log", others)
    assert "all 7 lines are of other releases" in refused("replay", log)


@pytest.mark.slow
def test_log_of_real_service_is_replayed(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "queries.log"
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        for number in range(30):
            service.http.post("/search", json={"query": f"What does permit {number} cost?"})
        service.http.post("/search", json={"query": "within", "filter": {"category": "bygglov"}})
        deadline = time.monotonic() + 120
        while not log.exists() or len(log.read_text(encoding="utf-8").splitlines()) < 30:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    text = log.read_text(encoding="utf-8")
    assert "permit" not in text
    assert all(re.fullmatch("[0-9a-f]{16}", json.loads(line)["query"]) for line in text.splitlines())  # hashed
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert "30 queries, 0 judgements, 0 blocks: 0 alarms" in capsys.readouterr().err
