"""An update gives the files of a full calibration with the same threshold, to the byte."""

import json
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.calibration.commands import Capture, Printed
from tests.calibration.update.corpora import Record, Updating, files_of, manifest_of, mixed_changes, newer

pytestmark = pytest.mark.slow

FILES = {"documents.jsonl", "golden.jsonl", "index.faiss", "outcomes.safetensors", "reference.safetensors"}


@pytest.fixture
def update(capfd: Printed) -> Updating:
    return Updating(capfd)


def full_run(releases: Path, data: Path, capfd: Printed, *more: str) -> Record:
    """The manifest of `calibrate --policy P --tau X`, with the threshold of the current release."""
    policy = manifest_of(releases)["policy"]
    fixed = ["--policy", policy["kind"], "--tau", repr(policy["tau"])]
    capfd.readouterr()
    command = ["calibrate", str(data), "--releases", str(releases), "--no-promote", "--json"]
    assert cli.main([*command, *fixed, *more]) == 0
    manifest: Record = json.loads(capfd.readouterr().out)["manifest"]
    return manifest


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--max-loss", "0.05", "--policy", "probability"),
        ("--max-loss", "0.05", "--policy", "relative", "--holdout", "0"),
        ("--index", "flat-float16", "--margin", "0.2"),
        ("--index", "flat-int8", "--margin", "0.2"),
    ],
    ids=["papers", "probability", "relative", "float16", "int8"],
)
def test_update_matches_full_calibration(
    options: tuple[str, ...], sample: Path, encoder: Path, tmp_path: Path, update: Updating, capfd: Printed
) -> None:
    releases = tmp_path / "releases"
    code, before, _ = Capture(capfd)(sample, releases, encoder, *options, "--refuse", "off")  # a given τ sets no ρ
    assert code == 0
    data = newer(sample, tmp_path / "newer", mixed_changes)
    code, printed, error = update(data, releases, "--no-promote", "--margin", "0.2")
    # A certified cut loses nearly what it may: one query more, and the loss is not certified again.
    certified = "--max-loss" in options
    assert code == (4 if certified else 0), error
    repeated = [word for word in options if not word.startswith("0.05")]
    kept = ["--holdout", "0"] if "--holdout" in repeated else []
    index = [*options] if "--index" in options else []
    full = full_run(releases, data, capfd, "--encoder", str(encoder), *kept, *index)
    updated = manifest_of(releases, printed["release"])
    assert files_of(updated) == files_of(full)
    assert {*files_of(updated)} > FILES
    withdrawn = {"certified": False, "guarantee": updated["policy"]["guarantee"]} if certified else {}
    assert updated["policy"] == before["policy"] | withdrawn
    assert updated["policy"]["tau"] == full["policy"]["tau"]
    assert full["policy"]["method"] == "fixed"
    assert updated["metrics"] == full["metrics"]
    assert updated["data"] == full["data"]
    assert updated["index"]["kind"] == before["index"]["kind"]
