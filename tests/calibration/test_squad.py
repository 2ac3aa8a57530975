"""SQuAD by the real encoder: the papers' numbers, and an update beside a full run.

In one file, so that one process encodes its paragraphs and the others need not.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.retrieval.index.flat import FlatIndex
from tests.calibration.commands import Printed
from tests.calibration.job.test_oracle import calibrate, compare, read_queries
from tests.calibration.update.corpora import Record, Updating, documents_of, files_of, manifest_of, newer
from tests.calibration.update.test_same_as_full_run import full_run
from tests.oracle import transcribe

pytestmark = [pytest.mark.data, pytest.mark.model, pytest.mark.exhaustive]


def part_of(data: Path, folder: Path, share: int) -> Path:
    """Copy a data set with one in `share` of its queries."""
    (folder / "qrels").mkdir(parents=True)
    shutil.copy(data / "corpus.jsonl", folder)
    queries = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()[::share]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    kept = {json.loads(line)["_id"] for line in queries}
    header, *rows = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if row.partition("\t")[0] in kept]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("share", "m", "within"), [(10, 100, 0.03), (1, 500, 0.004)])
def test_squad_matches_reference_implementation(
    share: int, m: int, within: float, public_data: Path, tmp_path: Path, capfd: Printed
) -> None:
    """At the papers' l = 100 and K = 5; all questions at their m = 500 as well."""
    data = part_of(public_data / "squad_v2_dev", tmp_path / "squad", share)
    releases = tmp_path / "releases"
    settings = ["--holdout", "0", "--method", "bootstrap", "--refuse", "off", "--bootstraps", str(m)]
    result = calibrate(capfd, str(data), "--releases", str(releases), *settings)
    questions, documents, correct = read_queries(data, Path(result["path"]))
    compare(result["manifest"], transcribe(questions, documents, correct, k=5, m=m, l=100, seed=0))
    top = FlatIndex.build(documents).search(questions, 5).positions.tolist()
    accuracy = np.mean([bool(set(row) & set(relevant)) for row, relevant in zip(top, correct, strict=True)])
    assert accuracy == pytest.approx(0.888, abs=within)
    assert result["manifest"]["metrics"]["calibration"]["accuracy"]["mean"] == pytest.approx(0.888, abs=within)


def one_in_ten(documents: list[Record]) -> list[Record]:
    """Change every tenth document, remove none that answers a query, and add as many as were changed."""
    changed = [
        record | {"text": f"{record['text']} A later edition says the same."} if row % 10 == 3 else record
        for row, record in enumerate(documents)
    ]
    added = [
        {"_id": f"new-{row}", "text": f"Edition {row}. {documents[row]['text'][:400]}"}
        for row in range(0, len(documents), 10)
    ]
    return [*added, *changed]


def test_squad_update_matches_full_calibration(public_data: Path, tmp_path: Path, capfd: Printed) -> None:
    releases = tmp_path / "releases"
    squad = part_of(public_data / "squad_v2_dev", tmp_path / "squad", 10)
    assert cli.main(["calibrate", str(squad), "--releases", str(releases), "--refuse", "off"]) == 0
    data = newer(squad, tmp_path / "newer", one_in_ten)
    code, printed, error = Updating(capfd)(data, releases, "--no-promote", "--margin", "0.1")
    assert code == 0, error
    changed = len(range(3, len(documents_of(squad)), 10))
    assert (printed["changed"], printed["removed"]) == (changed, 0)
    assert files_of(manifest_of(releases, printed["release"])) == files_of(full_run(releases, data, capfd))
    assert printed["parent"] == current_id(releases)
