"""How Gate is installed: its message and its pages name the same command, which works from a clone."""

import sys
from pathlib import Path

import pytest

from taugate_client import Gate
from taugate_client.errors import InvalidConfiguration

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def test_gate_without_its_package_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "taugate.errors", None)
    with pytest.raises(InvalidConfiguration, match=r"run `pip install \.` in a clone of its repository"):
        Gate("gates")


def test_page_on_gate_begins_with_its_installation() -> None:
    text = (HOW_TO / "calibrate-a-retriever.md").read_text(encoding="utf-8")
    first = text.partition("```sh\n")[2].partition("```")[0]
    assert "pip install '.[calibration" in first
    assert "pip install ./clients/python\n" in first
    assert text.index("pip install ./clients/python") < text.index("from taugate_client import Gate")
