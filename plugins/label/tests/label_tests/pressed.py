"""Keys that are pressed in place of a judge: `taugate judge` without its page."""

from collections.abc import Iterable

import pytest

from taugate_label.judging import Judging
from taugate_label.page import Commands, JudgingSession


def press(monkeypatch: pytest.MonkeyPatch, keys: Iterable[str]) -> None:
    """Let the next `taugate judge` in this process get these keys, until the sample or the keys end."""

    def judge(work: Judging, port: int, commands: Commands) -> None:
        session = JudgingSession(work, lambda remark: None)
        for key in keys:
            if session.question is None or not session.handle_key(key):
                return

    monkeypatch.setattr("taugate_label.page.judge_on_page", judge)
