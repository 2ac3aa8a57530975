"""SQuAD by the real encoder: the papers' numbers, and an update beside a full run.

In one file, so that one process encodes its paragraphs and the others need not. A quarter of the paragraphs and one in
ten of the questions about them are enough for what is compared to the last bit; `make test-exhaustive` takes them all.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.retrieval.index.flat import FlatIndex
from tests.calibration.job.test_oracle import calibrate, compare, read_queries
from tests.calibration.update.corpora import Record, Updating, documents_of, files_of, manifest_of, newer
from tests.calibration.update.test_same_as_full_run import full_run
from tests.oracle import transcribe

pytestmark = [pytest.mark.data, pytest.mark.model, pytest.mark.slow]


def part_of(data: Path, folder: Path, share: int, documents: int = 1) -> Path:
    """Copy a data set with one in `share` of the queries about one in `documents` of its documents."""
    (folder / "qrels").mkdir(parents=True)
    corpus = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[::documents]
    (folder / "corpus.jsonl").write_text("\n".join(corpus) + "\n", encoding="utf-8")
    there = {json.loads(line)["_id"] for line in corpus}
    header, *rows = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    elsewhere = {query for query, document, _ in map(str.split, rows) if document not in there}
    queries = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [line for line in queries if json.loads(line)["_id"] not in elsewhere][::share]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    kept = {json.loads(line)["_id"] for line in queries}
    rows = [row for row in rows if row.partition("\t")[0] in kept]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("share", "m", "within"),
    [
        pytest.param(10, 100, 0.03, marks=pytest.mark.exhaustive),
        pytest.param(1, 500, 0.004, marks=pytest.mark.exhaustive),
    ],
)
def test_squad_matches_reference_implementation(
    share: int, m: int, within: float, public_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At the papers' l = 100 and K = 5; all questions at their m = 500 as well."""
    data = part_of(public_data / "squad_v2_dev", tmp_path / "squad", share)
    releases = tmp_path / "releases"
    settings = ["--holdout", "0", "--method", "bootstrap", "--bootstraps", str(m)]
    result = calibrate(capfd, str(data), "--releases", str(releases), *settings)
    questions, documents, correct = read_queries(data, Path(result["path"]))
    compare(result["manifest"], transcribe(questions, documents, correct, k=5, m=m, l=100, seed=0))
    top = FlatIndex.build(documents).search(questions, 5).positions.tolist()
    accuracy = np.mean([bool(set(row) & set(relevant)) for row, relevant in zip(top, correct, strict=True)])
    assert accuracy == pytest.approx(0.888, abs=within)
    assert result["manifest"]["metrics"]["calibration"]["accuracy"]["mean"] == pytest.approx(0.888, abs=within)


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


@pytest.mark.parametrize(
    ("share", "documents"), [(100, 4), pytest.param(10, 1, marks=pytest.mark.exhaustive)], ids=["1 %", "10 %"]
)
def test_squad_update_matches_full_calibration(
    share: int, documents: int, public_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = tmp_path / "releases"
    squad = part_of(public_data / "squad_v2_dev", tmp_path / "squad", 10, documents)
    assert cli.main(["calibrate", str(squad), "--releases", str(releases), "--no-refusal"]) == 0
    data = newer(squad, tmp_path / "newer", one_in(share))
    code, printed, error = Updating(capfd)(data, releases, "--no-promote", "--margin", "0.1")
    assert code == 0, error
    changed = len(range(3, len(documents_of(squad)), share))
    assert (printed["changed"], printed["removed"]) == (changed, 0)
    assert files_of(manifest_of(releases, printed["release"])) == files_of(full_run(releases, data, capfd))
    assert printed["parent"] == current_id(releases)
