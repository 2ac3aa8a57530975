"""The stages of a calibration: what they pass on is typed and does not change, and one file makes manifests."""

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from taugate.calibration import job
from taugate.calibration.job.calibration import CalibrationRequest
from taugate.calibration.job.release_stages import Calibration, DecidedRelease
from taugate.calibration.job.stages import Accepted, EncodedData, Read
from taugate.calibration.study.study import Study
from taugate.calibration.update.job import CheckedUpdate, NewerCorpus

CALIBRATION = Path(job.__path__[0]).parent
STAGES = ("job", "update", "recalibration")
RECORDS = [
    CalibrationRequest,
    Read,
    EncodedData,
    Accepted,
    Study,
    DecidedRelease,
    Calibration,
    NewerCorpus,
    CheckedUpdate,
]


def files(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((CALIBRATION / folder).rglob("*.py")):
            yield path.relative_to(CALIBRATION).as_posix(), ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("record", RECORDS)
def test_record_of_stage_is_frozen(record: type) -> None:
    blank = object.__new__(record)
    with pytest.raises(FrozenInstanceError):
        setattr(blank, fields(record)[0].name, None)


def test_stages_pass_no_untyped_dictionary() -> None:
    untyped = {"dict[str, Any]", "dict[str, object]", "Mapping[str, Any]", "Mapping[str, object]"}
    found = [
        f"{name}:{node.lineno}"
        for name, tree in files(*STAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in untyped
    ]
    assert found == []


def test_one_file_makes_manifests() -> None:
    makers = {
        name
        for name, tree in files("")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for called in (node.func, *(node.args[:1] if ast.unparse(node.func) == "partial" else ()))
        if ast.unparse(called) in {"Manifest", "RunManifest"}
    }
    assert makers == {"job/release_stages.py"}
