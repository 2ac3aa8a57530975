"""`taugate settings`: values in force, their sources, and nothing that is secret."""

import json

import pytest

from taugate.cli import main as cli
from taugate.service.settings import VARIABLES


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings from every source: older names, other cases, secrets, and a name that is none."""
    for name, value in {
        "TAUGATE_REDIS_URL": "redis://:hush@h/0",
        "TAUGATE_KEYS": '[{"name": "hush"}]',
        "TAUGATE_DRIFT_SELDOM": "1e9",
        "taugate_max_k": "7",
        "TAUGATE_MAXK": "3",
        "TAUGATE_HOST": "127.0.0.2",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_settings_table_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "--releases", "s3://bucket/team", "--host", "127.0.0.3"]) == 0
    printed = capsys.readouterr()
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in printed.out.splitlines()}
    assert list(rows) == [variable.name for variable in VARIABLES.values()]
    assert rows["TAUGATE_RELEASES"] == ["s3://bucket/team", "flag (--releases)"]
    assert rows["TAUGATE_HOST"] == ["127.0.0.3", "flag (--host)"], "a flag goes before the environment"
    assert rows["TAUGATE_MAX_K"] == ["7", "environment (taugate_max_k)"]
    assert rows["TAUGATE_REDIS_URL"] == ["(hidden)", "environment"]
    drift, source = rows["TAUGATE_DRIFT"]
    assert drift.startswith("true,window_queries=10000,")
    assert source == "environment (TAUGATE_DRIFT_SELDOM)"
    assert "hush" not in printed.out + printed.err
    *notices, unknown, former = printed.err.splitlines()
    assert [notice.rpartition("; ")[2] for notice in notices] == ["set TAUGATE_RELEASES", "set TAUGATE_HOST"]
    assert unknown == "warning: TAUGATE_MAXK is set, but is not a setting; did you mean TAUGATE_MAX_K?"
    assert former.endswith("DRIFT_SELDOM is a former name; use TAUGATE_DRIFT=VALUE,average_run_length=VALUE")


@pytest.mark.usefixtures("environment")
def test_settings_json_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "--json", "--port", "9000"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["unknown"] == {"TAUGATE_MAXK": "TAUGATE_MAX_K"}
    assert found["settings"]["TAUGATE_PORT"] == {"value": 9000, "source": "flag", "set_by": "--port"}
    assert found["settings"]["TAUGATE_RELEASES"] == {"value": None, "source": "default", "set_by": None}
    assert found["settings"]["TAUGATE_MAX_BATCH"] == {
        "value": 64,
        "options": {"body_bytes": 1_048_576},
        "source": "default",
        "set_by": None,
    }
    assert found["settings"]["TAUGATE_KEYS"]["value"] == "(hidden)"
    assert "hush" not in printed.out + printed.err


def test_unusable_value_ends_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TAUGATE_MAX_K", "0")
    assert cli.main(["settings"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "taugate: TAUGATE_MAX_K=0: must be greater than or equal to 1\n")
