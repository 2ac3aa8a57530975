"""Libraries report their use only if TAUGATE_TELEMETRY is on, in every process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.service.settings import Settings
from taugate.telemetry import OFF, SETTING
from tests.helm.rendered import KEYS, at, render

ROOT = Path(__file__).resolve().parents[1]
_PRINT = f"import os; print([os.environ.get(name) for name in {list(OFF)}])"


def environment(tmp_path: Path, **variables: str) -> dict[str, str]:
    """Return an environment without the variables of this process: CI itself silences ONNX Runtime."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}


def values(tmp_path: Path, before: str = "", **variables: str) -> list[str | None]:
    """Return the variables of the libraries in a process that imports a module of Taugate."""
    code = f"{before}\nimport taugate.errors\n{_PRINT}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, **variables), capture_output=True, text=True, check=True
    )
    return eval(done.stdout)  # noqa: S307 (printed by the code above)


def switched_off() -> list[str]:
    return list(OFF.values())


def test_import_switches_reports_off(tmp_path: Path) -> None:
    assert values(tmp_path) == switched_off()


@pytest.mark.parametrize("value", ["off", "false", "0", "no", "", "On ", "maybe"])
def test_false_value_switches_reports_off(value: str, tmp_path: Path) -> None:
    assert values(tmp_path, **{SETTING: value}) == switched_off()


@pytest.mark.parametrize("value", ["0", "", "false", "off"])
def test_library_variable_alone_enables_nothing(value: str, tmp_path: Path) -> None:
    assert values(tmp_path, ORT_DISABLE_TELEMETRY=value) == switched_off()


@pytest.mark.parametrize("value", ["on", "ON", "true", "1", "yes"])
def test_enabled_reports_keep_environment(value: str, tmp_path: Path) -> None:
    assert values(tmp_path, **{SETTING: value}) == [None] * len(OFF)
    assert values(tmp_path, **{SETTING: value}, ORT_DISABLE_TELEMETRY="1")[0] == "1"


@pytest.mark.parametrize("value", ["on", "off", "1", "0", "true", "False", "yes", "No", "y", "t"])
def test_service_parses_setting_like_commands(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, value)
    reports = Settings(releases=Path()).telemetry.libraries_report
    assert values(tmp_path, **{SETTING: value}) == ([None] * len(OFF) if reports else switched_off())


def test_setting_name_ignores_case(tmp_path: Path) -> None:
    assert values(tmp_path, taugate_telemetry="on") == [None] * len(OFF)


def test_child_process_inherits_switched_off_reports(tmp_path: Path) -> None:
    code = f"""
import multiprocessing, os, subprocess, sys
import taugate
subprocess.run([sys.executable, "-c", {_PRINT!r}], check=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == repr(switched_off())


def test_onnxruntime_writes_no_machine_id(tmp_path: Path) -> None:
    code = "import taugate.retrieval.encoder.bert, onnxruntime"
    subprocess.run([sys.executable, "-c", code], env=environment(tmp_path, ORT_DISABLE_TELEMETRY="0"), check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_images_switch_reports_off() -> None:
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (runtime,) = re.findall(r"^FROM \S+ AS runtime\n(.*?)^FROM ", dockerfile, re.MULTILINE | re.DOTALL)
    for name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):  # no image has Ray
        assert f"{name}={OFF[name]}" in runtime.split()


def test_chart_enables_all_reports() -> None:
    off, on = render(KEYS).environment, render(KEYS, at("settings.telemetry", True)).environment
    assert not {SETTING, *OFF} & off.keys()
    assert {name: on.get(name) for name in (SETTING, *OFF)} == {
        SETTING: "true",
        "ORT_DISABLE_TELEMETRY": "0",
        "HF_HUB_DISABLE_TELEMETRY": "0",
        "RAY_USAGE_STATS_ENABLED": None,
    }
