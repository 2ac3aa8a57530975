"""docs/compatibility.md has the versions of the code, and every old name that still works."""

import re
from pathlib import Path

import pytest

from taugate.drift.monitor import Baseline
from taugate.release.manifest import SCHEMA_VERSION
from taugate.service.pipeline.reply import _SCHEMA as CACHE_SCHEMA
from taugate.service.settings.settings import FORMER_NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
FLEET = ROOT / "src" / "taugate" / "service" / "replicas.py"
DRIFT_KEYS = re.search(r'"taugate:drift:(\d+):', FLEET.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("row", "version"),
    [
        ("release", SCHEMA_VERSION),
        ("baseline of drift", Baseline.model_fields["schema_version"].default),
        ("cache in Redis", CACHE_SCHEMA),
        ("drift alarms in Redis", int(DRIFT_KEYS[1]) if DRIFT_KEYS else None),
    ],
)
def test_versions_match_code(row: str, version: int) -> None:
    versions = re.findall(rf"^\| {row}.*, now (\d+) \| ([\d, ]+) \|$", PAGE, re.MULTILINE)
    assert [(now, read.split(", ")[-1]) for now, read in versions] == [(str(version), str(version))]


def test_old_names_are_listed() -> None:
    listed = {
        (old, new)
        for olds, new in re.findall(r"^\| ((?:`TAUGATE_\w+`(?:, )?)+) \| `(TAUGATE_\w+)`", PAGE, re.MULTILINE)
        for old in re.findall(r"TAUGATE_\w+", olds)
    }
    assert listed == {(old, re.split("=", new)[0]) for old, new in FORMER_NAMES.items()}
