"""`taugate judge --traffic`: drawn queries are judged on the page, and verdicts go into their log."""

import json
import time
from pathlib import Path

import pytest

from label_tests.pressed import press
from taugate.cli import main as cli
from taugate.drift.drawn import DrawnLog, DrawnQuery, DrawnResult, DrawnVerdict, append, drawn_log
from taugate.drift.live_loss import Prediction
from taugate.drift.sequences import Draw


def draw(log: Path, number: int, documents: list[str], text: str = "What does a permit cost?") -> None:
    outcomes = Prediction(0.1, 0.9, 0.0).outcomes
    log.touch()
    results = [DrawnResult(name, place, 0.5, place == 0) for place, name in enumerate(documents)]
    record = DrawnQuery(
        at=time.time(),
        query_id=f"{number:032x}",
        release="r",
        key=None,
        query=f"{text} {number}",
        propensity=0.5,
        draw=Draw(number, 0.5, outcomes, outcomes),
        results=results,
    )
    append(drawn_log(log), [record])


@pytest.fixture
def documents(data: Path) -> list[str]:
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:3]
    return [json.loads(line)["_id"] for line in lines]


def test_verdicts_of_judged_queries_are_appended(
    data: Path,
    documents: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "queries.log"
    for number in range(1, 4):
        draw(log, number, documents)
    words = ["judge", str(data), "--traffic", "--log", str(log), "--judge", "ana", "--json"]
    press(monkeypatch, "nyn" + "s" + "n" + "q")
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"judge": "ana", "queries": 3, "judged": 1}
    press(monkeypatch, "nn" + "q")
    assert cli.main(words) == 0

    follower = DrawnLog(drawn_log(log), "r")
    follower.follow()
    assert [query.query_id[-1] for query in follower.waiting(model=False)] == ["2"]
    assert [row["labels"].tolist() for row in follower.rows] == [[1, 1, 0], [0, 0, 1]]
    assert not (data / "qrels" / "drawn.tsv").exists()


def test_only_the_newest_queries_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taugate.drift.drawn._MOST", 2)
    log, follower = tmp_path / "queries.log", DrawnLog(drawn_log(tmp_path / "queries.log"), "r")
    draw(log, 1, ["a"])
    append(follower.path, [DrawnVerdict(at=0.0, query_id=f"{1:032x}", judge="ana", relevant=["a"])])
    for number in (2, 3, 4):
        draw(log, number, ["a"])
    append(follower.path, [DrawnVerdict(at=0.0, query_id=f"{2:032x}", judge="ana")])  # too old
    follower.follow()
    assert [query.query_id[-1] for query in follower.waiting(model=False)] == ["3", "4"]
    assert len(follower.rows) == 1, "what was judged in time counts"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--traffic: name the query log"),
        (["--log", "{log}", "--n", "0"], "no drawn query waits"),
        (["--log", "{log}"], "has no document 'gone'"),
    ],
)
def test_drawn_queries_that_cannot_be_judged_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    log = tmp_path / "queries.log"
    draw(log, 1, ["gone"])
    assert cli.main(["judge", str(data), "--traffic", *(word.format(log=log) for word in words)]) == 2
    assert message in capsys.readouterr().err
