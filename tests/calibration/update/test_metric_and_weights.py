"""An update compares what the release promises: its own metric, and queries by their weights."""

import json
from pathlib import Path

import pytest

from tests.calibration.commands import Capture, Printed, small
from tests.calibration.update.corpora import Record, Updating, manifest_of, newer


@pytest.fixture
def update(capfd: Printed) -> Updating:
    return Updating(capfd)


def test_ndcg_is_compared_by_ndcg(tmp_path: Path, update: Updating, capfd: Printed) -> None:
    """A document with more words of a query ranks first: accuracy stays, and NDCG falls."""
    data, encoder = small(tmp_path / "small", 60)
    releases = tmp_path / "releases"
    options = ("--metric", "ndcg", "--max-loss", "0.2", "--policy", "similarity", "--refuse", "off", "--lexical", "off")
    code, before, _ = Capture(capfd)(data, releases, encoder, *options)
    assert (code, before["policy"]["metric"]) == (0, "ndcg")
    queries = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:40]

    def outranked(documents: list[Record]) -> list[Record]:
        return [
            *documents,
            *({"_id": f"copy-{row}", "text": json.loads(line)["text"]} for row, line in enumerate(queries)),
        ]

    code, printed, error = update(newer(data, tmp_path / "newer", outranked), releases, "--no-promote")
    assert (code, printed["holds"]) == (4, False)
    assert printed["loss"]["mean"] > 0.1
    assert "the threshold is not shown to hold: on 60 queries, NDCG at τ went from " in error


def test_few_labels_count_by_weight(tmp_path: Path, update: Updating, capfd: Printed) -> None:
    """Queries without an answer among the results weigh more, in the release and in its update."""
    data, encoder = small(tmp_path / "small", 60)
    lines = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    judged = [f"{line}\t{4 if row < 6 else 1}" for row, line in enumerate(lines[1:])]
    judged[:6] = [line.replace(f"\td{row}\t", f"\td{row + 30}\t") for row, line in enumerate(judged[:6])]
    (data / "qrels" / "human.tsv").write_text("\n".join([f"{lines[0]}\tweight", *judged]) + "\n", encoding="utf-8")
    releases = tmp_path / "releases"
    code, before, error = Capture(capfd)(
        data, releases, encoder, "--labels", "human", "--max-loss", "0.4", "--refuse", "off"
    )
    assert code == 0, error
    added = newer(data, tmp_path / "newer", lambda documents: [*documents, {"_id": "new", "text": "word399 z"}])
    code, printed, error = update(added, releases, "--margin", "0.2")
    assert (code, printed["loss"]["mean"]) == (0, 0.0), error
    manifest = manifest_of(releases)
    accuracy = before["metrics"]["calibration"]["accuracy_at_tau"]["mean"]
    assert manifest["metrics"]["calibration"]["accuracy_at_tau"]["mean"] == pytest.approx(accuracy)
    assert f"went from {accuracy:.4f} to {accuracy:.4f}" in error
    assert accuracy < 0.75, "54 of 60 would be .9"
    assert manifest["labels"]["most"] == 0.4
