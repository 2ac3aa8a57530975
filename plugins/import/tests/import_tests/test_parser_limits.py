"""Limits of the process that parses a file: processor time, whatever else the machine does, and a wait as backstop."""

import resource
import time
from pathlib import Path

import pytest

from taugate.data.parsed import UnreadableFile
from taugate_import import parse
from taugate_import.parse import IsolatedParser


@pytest.mark.slow
def test_parser_is_stopped_after_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_MAX_SECONDS", 1)
    (tmp_path / "long.md").write_text("[a](b) *c* <d> " * 1_000_000)
    (tmp_path / "short.md").write_text("The pump starts.")
    with IsolatedParser() as parser:
        with pytest.raises(UnreadableFile, match="takes more than 1 s of processor time to read"):
            parser.read(tmp_path / "long.md")
        assert parser.read(tmp_path / "short.md").documents[0].text == "The pump starts."


def test_time_of_earlier_files_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is raised before each file, by the time that the process has used, and never above that of the user."""
    (tmp_path / "a.txt").write_text("Pump")
    limits: list[tuple[int, int]] = []
    of_user = iter([-1, -1, 100])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    monkeypatch.setattr(time, "process_time", iter([0.5, 70.5, 70.5]).__next__)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (-1, next(of_user)))

    for _ in range(3):
        parse._read_or_exit(tmp_path / "a.txt", 60)
    assert limits == [(61, -1), (131, -1), (100, 100)]
