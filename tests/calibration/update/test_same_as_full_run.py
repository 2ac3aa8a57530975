"""An update gives the files of a full calibration with the same threshold, to the byte."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from tests.calibration.commands import Capture
from tests.calibration.update.corpora import Record, Updating, documents_of, files_of, manifest_of, mixed_changes, newer

FILES = {"documents.jsonl", "golden.jsonl", "index.faiss", "outcomes.safetensors", "reference.safetensors"}


@pytest.fixture
def update(capfd: pytest.CaptureFixture[str]) -> Updating:
    return Updating(capfd)


def full_run(releases: Path, data: Path, capfd: pytest.CaptureFixture[str], *more: str) -> Record:
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
def test_files_of_the_sample(
    options: tuple[str, ...],
    sample: Path,
    encoder: Path,
    tmp_path: Path,
    update: Updating,
    capfd: pytest.CaptureFixture[str],
) -> None:
    releases = tmp_path / "releases"
    code, before, _ = Capture(capfd)(sample, releases, encoder, *options)
    assert code == 0
    data = newer(sample, tmp_path / "newer", mixed_changes)
    code, printed, error = update(data, releases, "--no-promote", "--margin", "0.2")
    assert code == 0, error
    repeated = [word for word in options if not word.startswith("0.05")]
    kept = ["--holdout", "0"] if "--holdout" in repeated else []
    index = [*options] if "--index" in options else []
    full = full_run(releases, data, capfd, "--encoder", str(encoder), *kept, *index)
    updated = manifest_of(releases, printed["release"])
    assert files_of(updated) == files_of(full)
    assert {*files_of(updated)} > FILES
    assert updated["policy"] == before["policy"]
    assert updated["policy"]["tau"] == full["policy"]["tau"]
    assert full["policy"]["method"] == "fixed"
    assert updated["metrics"] == full["metrics"]
    assert updated["data"] == full["data"]
    assert updated["index"]["kind"] == before["index"]["kind"]


def one_in(share: int) -> Callable[[list[Record]], list[Record]]:
    """Change every so many-th document, remove none that answers a query, and add as many as were changed."""

    def change(documents: list[Record]) -> list[Record]:
        changed = [
            record | {"text": f"{record['text']} A later edition says the same."} if row % share == 3 else record
            for row, record in enumerate(documents)
        ]
        added = [
            {"_id": f"new-{row}", "text": f"Edition {row}. {documents[row]['text'][:400]}"}
            for row in range(0, len(documents), share)
        ]
        return [*added, *changed]

    return change


def with_few_queries(data: Path, folder: Path) -> Path:
    """Copy a data set with one in ten of its queries, which are enough here and encoded ten times as fast."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").symlink_to(data / "corpus.jsonl")
    queries = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()[::10]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    kept = {json.loads(line)["_id"] for line in queries}
    header, *rows = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if row.partition("\t")[0] in kept]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.data
@pytest.mark.model
@pytest.mark.parametrize("share", [100, 10], ids=["1 %", "10 %"])
def test_files_of_squad(
    share: int, public_data: Path, tmp_path: Path, update: Updating, capfd: pytest.CaptureFixture[str]
) -> None:
    releases, squad = tmp_path / "releases", with_few_queries(public_data / "squad_v2_dev", tmp_path / "squad")
    assert cli.main(["calibrate", str(squad), "--releases", str(releases)]) == 0
    data = newer(squad, tmp_path / "newer", one_in(share))
    code, printed, error = update(data, releases, "--no-promote", "--margin", "0.1")
    assert code == 0, error
    changed = len(range(3, len(documents_of(squad)), share))
    assert (printed["changed"], printed["removed"]) == (changed, 0)
    assert files_of(manifest_of(releases, printed["release"])) == files_of(full_run(releases, data, capfd))
    assert printed["parent"] == current_id(releases)
