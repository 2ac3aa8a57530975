"""`taugate traffic`: what the command says of the judgements that it learned from."""

import json
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.data.test_traffic import data
from tests.data.traffic_log import TrafficLog

__all__ = ["data"]  # a fixture


def test_command_counts_judgements_by_reason(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = TrafficLog()
    log.judged(log.asked("q", ["d1"]), "d2")
    command = ["traffic", str(log.write(data.parent / "log")), "--to", str(data)]
    assert cli.main(command) == 2
    assert "no judgement can be used: 1 " in capsys.readouterr().err
    log.judged(log.asked("fine", ["d1"]), "d1")
    log.write(data.parent / "log")
    assert cli.main([*command, "--json"]) == 0
    messages = capsys.readouterr()
    result = json.loads(messages.out)
    assert result.pop("seconds") > 0
    assert result == {"queries": 1, "judgements": 1, "left_out": {"not_shown": 1}}
    assert "Left out: 1 that are" in messages.err
