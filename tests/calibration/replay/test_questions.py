"""The questions that a replay names under an alarm: which ones, in which groups, and what it says without texts."""

from pathlib import Path

import pytest
import zaragoza_construction_faq

from taugate.cli import main as cli
from taugate.drift.new_questions import MAX_GROUPS
from tests.calibration.replay.conftest import Command
from tests.calibration.replay.records import DAY, START, write

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
    lines: list[dict], tmp_path: Path, replayed: Command, releases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "queries.log", lines)
    assert replayed(log)["questions"] is None
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert capsys.readouterr().err.count("TAUGATE_QUERY_LOG_TEXTS=true keeps the texts") == 1


def test_replay_without_alarm_names_no_question(asked: list[dict], tmp_path: Path, replayed: Command) -> None:
    assert replayed(write(tmp_path / "queries.log", asked[:2400]))["questions"] == []


def test_control_characters_of_question_are_not_printed(
    asked: list[dict], tmp_path: Path, releases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line | {"query": f"{line['query']}\x1b[2J"} for line in asked]
    assert cli.main(["drift", "replay", str(write(tmp_path / "q.log", lines)), "--releases", str(releases)]) == 0
    assert "\x1b" not in capsys.readouterr().err
