"""Logged traffic is compared with a release's calibration: baseline, records of the log, questions."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zaragoza_construction_faq

from taugate.calibration.replay import AnsweredLog, read_log
from taugate.cli import main as cli
from taugate.drift.monitor import load_baseline
from taugate.drift.new_questions import MAX_GROUPS
from taugate.drift.observations import hashed, query_key
from taugate.drift.signals import Rules
from taugate.release.layout import baseline_path
from tests.calibration.commands import Printed
from tests.calibration.replay.conftest import Command
from tests.calibration.replay.records import DAY, START, Service, write
from tests.service.drift.traffic import FastDriftService


def test_replay_prints_alarms(releases: Path, lines: list[dict], tmp_path: Path, capsys: Printed) -> None:
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
    assert list(found) == ["release", "queries", "judged", "blocks", "baseline", "moments", "loss", "questions"]
    assert (found["release"], found["queries"], found["judged"]) == (service.release, 4800, 480)
    assert (found["blocks"], found["baseline"]) == (24, False)
    alarms = {moment["signal"]: moment["after"] for moment in found["moments"] if moment["alarm"]}
    assert {*alarms} == {"topk_similarity", "empty_responses", "dropped_share"}
    assert all(2400 < after < 2900 for after in alarms.values())
    over = {moment["signal"]: moment["after"] for moment in found["moments"] if not moment["alarm"]}
    assert {*over} == {*alarms}
    assert all(3000 < after <= 4200 for after in over.values())


def test_unchanged_traffic_raises_no_alarm(releases: Path, lines: list[dict], tmp_path: Path, capsys: Printed) -> None:
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
def test_log_of_real_service_is_replayed(releases: Path, tmp_path: Path, capsys: Printed) -> None:
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


Learn = Callable[..., tuple[str, str]]


@pytest.fixture
def own(releases: Path, tmp_path: Path) -> Path:
    """A copy of the releases, which a baseline is written beside."""
    return Path(shutil.copytree(releases, tmp_path / "releases"))


@pytest.fixture(scope="module")
def week(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight days of 1,000 queries each, at night about something else."""
    service = Service(releases)
    queries = []
    for at in (START + np.arange(8000) * DAY / 1000).tolist():
        night = at % DAY < DAY / 3
        queries += service.queries([at], off=0.3 if night else 0.0)
    return write(tmp_path_factory.mktemp("week") / "week.log", queries)


@pytest.fixture
def learn(own: Path, capsys: Printed) -> Learn:
    def run(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        assert cli.main(["drift", "baseline", *map(str, arguments), "--releases", str(own)]) == 0
        said = capsys.readouterr()
        return said.out, said.err

    return run


def test_baseline_is_written_beside_release(own: Path, week: Path, service: Service, learn: Learn) -> None:
    out, err = learn(week)
    path = baseline_path(own, service.release)
    assert out == f"{path}\n"
    learnt, *warnings, last = err.splitlines()
    assert learnt == "learned from 8,000 queries on 9 days, 40 blocks: 2001-09-09 01:46:40 to 2001-09-17 01:45:13 UTC"
    assert last == f"to use it, set TAUGATE_DRIFT_BASELINE={path} for the service"
    assert [line.split(": ")[1] for line in warnings] == ["topk_similarity", "empty_responses", "dropped_share"]
    assert all("differs from the calibration's" in line and "recalibrate if it persists" in line for line in warnings)
    answered = AnsweredLog.read(own, None, [week])
    found = load_baseline(path, service.release, answered.monitor(Rules()))
    assert (found.days, found.blocks, found.queries) == (9, 40, 8000)


def test_baseline_json_output(own: Path, week: Path, service: Service, learn: Learn) -> None:
    found = json.loads(learn(week, "--json", "--block", "100")[0])
    assert {*found} == {"release", "path", "days", "blocks", "queries", "signals"}
    assert (found["release"], found["path"]) == (service.release, str(baseline_path(own, service.release)))
    assert (found["days"], found["blocks"], found["queries"]) == (9, 80, 8000)
    assert {*found["signals"]} == {"topk_similarity", "roe", "empty_responses", "dropped_share"}
    assert all(len(each["lower"]) == len(each["upper"]) for each in found["signals"].values())


def test_baseline_is_reproducible(own: Path, week: Path, service: Service, learn: Learn) -> None:
    path = baseline_path(own, service.release)
    learn(week)
    first = path.read_bytes()
    learn(week)
    assert path.read_bytes() == first


def test_baseline_suppresses_nightly_alarms(own: Path, week: Path, learn: Learn, replayed: Command) -> None:
    without = replayed(week)
    assert [moment for moment in without["moments"] if moment["alarm"]]
    path = learn(week)[0].strip()
    for named in (path, own):  # the file, or the folder that it is in
        found = replayed(week, "--baseline", named)
        assert found["baseline"] is True
        assert found["moments"] == []


def test_short_log_writes_no_baseline(own: Path, service: Service, tmp_path: Path, refused: Callable[..., str]) -> None:
    days = service.queries((START + np.arange(6000) * DAY / 1000).tolist())[:5000]
    few = service.queries((START + np.arange(800) * DAY / 100).tolist())
    before = sorted(own.iterdir())
    said = refused("baseline", write(tmp_path / "days.log", days), releases=own)
    assert "6 days (UTC) and 25 blocks of 200 distinct queries; a baseline needs 7 days" in said
    assert "9 days (UTC) and 4 blocks" in refused("baseline", write(tmp_path / "few.log", few), releases=own)
    assert "--block must be auto" in refused("baseline", tmp_path / "few.log", "--block", "7", releases=own)
    assert sorted(own.iterdir()) == before


def test_incompatible_baseline_is_rejected(
    own: Path, week: Path, learn: Learn, tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = Path(learn(week)[0].strip())
    text = path.read_text(encoding="utf-8")
    (tmp_path / "damaged.json").write_text(text.replace('"days": 9', '"days": 8'), encoding="utf-8")
    (tmp_path / "none.json").write_text("{}", encoding="utf-8")
    for name, said in (
        ("damaged", "its digest does not match"),
        ("none", "not a baseline"),
        ("missing", "No such file"),
    ):
        error = refused("replay", week, "--baseline", tmp_path / f"{name}.json", releases=own)
        assert said in error
        assert "make it again with `taugate drift baseline`" in error
    assert not week.with_name("week.log.html").exists()


def test_baseline_of_another_release_is_rejected(
    own: Path, week: Path, learn: Learn, tmp_path: Path, refused: Callable[..., str]
) -> None:
    learn(week)
    answered = AnsweredLog.read(own, None, [week])
    other = "20200101T000000Z-0123456789ab"
    found = load_baseline(baseline_path(own, answered.release), answered.release, answered.monitor(Rules()))
    found.model_copy(update={"release": other}).save(tmp_path / "other.json")
    error = refused("replay", week, "--baseline", tmp_path / "other.json", releases=own)
    assert f"belongs to release '{other}', not to {answered.release}" in error


def test_hashed_query_matches_text(service: Service, tmp_path: Path) -> None:
    texts = ["Behöver jag bygglov?", "", "  Behöver jag bygglov?", "ABCDEF0123456789", "0123", "Behöver jag bygglov?"]
    records = [service.queries([START + at])[0] for at in range(len(texts))]
    logs = []
    for name, form in (("texts", str), ("hashes", hashed)):
        written = [record | {"query": form(text)} for record, text in zip(records, texts, strict=True)]
        path = write(tmp_path / name, written)
        logs.append(read_log([path], service.release, 5).queries)
    assert logs[0].key.tolist() == logs[1].key.tolist() == [query_key(text) for text in texts]
    assert len({*logs[0].key.tolist()}) == 5


def test_replies_are_decided_as_in_the_service(service: Service, tmp_path: Path) -> None:
    """By one relevant result, or by all that are kept; what is not comparable, or of an old log, says nothing."""
    queries = service.queries([START])
    no, other = {"relevant": False, "document_id": "first"}, {"relevant": False, "document_id": "second"}
    named = {"query_id": None, "query": "Which?", "query_hash": hashed("Which?")}

    def judged(**fields: object) -> dict:
        return service.judged(queries, **fields)[0]

    lines = [
        *(judged(query_id="none", **each) for each in (no, no, other, {})),
        *(judged(query_id="one", **each) for each in (no, {}, other)),
        judged(query_id="undecided", **no),
        judged(query_id="explored", kept=False),
        judged(query_id="filtered", not_comparable="filtered"),
        {name: value for name, value in judged(query_id="old").items() if name not in {"kept", "of", "query_hash"}},
        *(judged(**named, **each) for each in (no, {"key": "other"}, other)),
    ]
    log = read_log([write(tmp_path / "log", [*queries, *lines])], service.release, 5)
    assert log.judged.relevant.tolist() == [0, 1, 1, 0]
    asked = int(queries[0]["query"], 16)
    assert log.judged.key.tolist() == [asked, asked, query_key("Which?"), query_key("Which?")]


def test_log_lines_are_sorted_by_time(service: Service, tmp_path: Path) -> None:
    queries = service.queries([START + at for at in (3, 1, 2)])
    judged = service.judged(queries)
    log = read_log([write(tmp_path / "log", judged + queries)], service.release, 5)
    assert log.queries.at.tolist() == log.judged.at.tolist() == [START + at for at in (1, 2, 3)]
    assert log.queries.key.tolist() == [int(queries[row]["query"], 16) for row in (1, 2, 0)]
    assert log.queries.top.tolist() == [queries[row]["topk"] for row in (1, 2, 0)]
    assert log.judged.key.tolist() == log.queries.key.tolist()


def without(name: str) -> Callable[[dict], dict]:
    return lambda line: {field: line[field] for field in line if field != name}


QUERIES: dict[str, tuple[Callable[[dict], object], str]] = {
    "no time": (without("at"), '"at": field required'),
    "time as text": (lambda line: line | {"at": "noon"}, '"at": input should be a valid number'),
    "before 1970": (lambda line: line | {"at": -1}, '"at": input should be greater than or equal to 0'),
    "after the year 9999": (lambda line: line | {"at": 1e30}, '"at": input should be less than'),
    "no query": (without("query"), '"query": field required'),
    "a query that is no text": (lambda line: line | {"query": 7}, '"query": input should be a valid string'),
    "more kept than there are": (lambda line: line | {"kept": 6}, '"kept": 6 of 5 results'),
    "no similarities": (lambda line: line | {"topk": None}, '"topk": input should be a valid list'),
    "a similarity that is none": (
        lambda line: line | {"topk": [*line["topk"][:-1], "x"]},
        '"topk.4": input should be a valid number',
    ),
    "beyond float32": (lambda line: line | {"topk": [1e300, *line["topk"][1:]]}, '"topk.0": input should be less than'),
    "another K": (lambda line: line | {"topk": line["topk"][:3]}, "3 and 4 similarities"),
    "no random documents": (lambda line: line | {"random": []}, "5 and 0 similarities"),
    "fewer random documents": (lambda line: line | {"random": [0.1]}, "5 and 1 similarities"),
    "a list": (lambda line: [1, 2], "not a JSON object"),
}
JUDGEMENTS: dict[str, tuple[Callable[[dict], object], str]] = {
    "no document": (without("document_id"), '"document_id": field required'),
    "no similarity": (lambda line: line | {"score": None}, '"score": input should be a valid number'),
}


@pytest.mark.parametrize(
    ("judged", "change", "said"),
    [
        *(pytest.param(False, *case, id=name) for name, case in QUERIES.items()),
        *(pytest.param(True, *case, id=f"judgement: {name}") for name, case in JUDGEMENTS.items()),
    ],
)
def test_invalid_log_line_is_rejected(
    service: Service,
    tmp_path: Path,
    refused: Callable[..., str],
    judged: bool,
    change: Callable[[dict], dict],
    said: str,
) -> None:
    queries = service.queries([START + at for at in range(3)])
    changed = (service.judged(queries) if judged else queries)[2]
    log = write(tmp_path / "queries.log", [*queries, change(changed)])
    error = refused("replay", log)
    assert f"{log}:4: " in error
    assert said in error
    assert [path.name for path in tmp_path.iterdir()] == ["queries.log"]


def test_missing_or_empty_log_is_rejected(tmp_path: Path, refused: Callable[..., str]) -> None:
    missing = tmp_path / "nothing.log"
    assert "nothing.log: no such file; the service writes one if TAUGATE_QUERY_LOG names it" in refused(
        "replay", missing
    )
    assert "empty.log: no query" in refused("replay", write(tmp_path / "empty.log", []))


QUESTIONS = [entry["q"] for entry in zaragoza_construction_faq.load(lang="en")]
VISAS = [f"How long does a visa for {country} take?" for country in ("India", "China", "Brazil", "Ghana", "Vietnam")]
NOON = START + DAY / 2


@pytest.fixture(scope="module")
def asked(lines: list[dict]) -> list[dict]:
    """The day with texts: questions of the sample, and about visas among those that are unlike the calibration."""
    queries = [line for line in lines if "topk" in line]
    for number, line in enumerate(queries):
        new = 2400 <= number < 3000 and number % 2
        text = VISAS[number % len(VISAS)] if new else QUESTIONS[number % len(QUESTIONS)]
        queries[number] = line | {"query": f"{text} ({number})"}
    return queries


def test_replay_names_new_questions_under_alarm(asked: list[dict], tmp_path: Path, replayed: Command) -> None:
    found = replayed(write(tmp_path / "queries.log", asked))
    first, *others = found["questions"]
    assert first["word"] == "visa" and first["question"].startswith("How long does a visa for ")
    assert 250 < first["count"] <= 300
    assert abs(first["since"] - NOON) < 3600
    assert len(others) < MAX_GROUPS
    assert all(group["count"] < first["count"] for group in others)


def test_log_without_texts_is_said_in_one_sentence(
    lines: list[dict], tmp_path: Path, replayed: Command, releases: Path, capsys: Printed
) -> None:
    log = write(tmp_path / "queries.log", lines)
    assert replayed(log)["questions"] is None
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert capsys.readouterr().err.count("TAUGATE_QUERY_LOG_TEXTS=true keeps the texts") == 1


def test_replay_without_alarm_names_no_question(asked: list[dict], tmp_path: Path, replayed: Command) -> None:
    assert replayed(write(tmp_path / "queries.log", asked[:2400]))["questions"] == []


def test_control_characters_of_question_are_not_printed(
    asked: list[dict], tmp_path: Path, releases: Path, capsys: Printed
) -> None:
    lines = [line | {"query": f"{line['query']}\x1b[2J"} for line in asked]
    assert cli.main(["drift", "replay", str(write(tmp_path / "q.log", lines)), "--releases", str(releases)]) == 0
    assert "\x1b" not in capsys.readouterr().err
