"""The measurements of cropped queries are the product's own, and the table that ships is the page's."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.checkout import ROOT
from benchmarks.generated.cases import Case
from benchmarks.generated.sets import PublicSet
from benchmarks.generated.shipped import SHIPPED, measured_sets, write_shipped
from benchmarks.markdown import share
from taugate.calibration.provisional.bias import read_table
from taugate.cli import main as cli
from taugate.ingestion.dataset.beir import read_dataset
from taugate.registry.catalog import release_ids
from taugate.retrieval.release.verify import verify


def test_the_thresholds_are_those_that_calibrate_writes(sample: Path, encoder: Path, tmp_path: Path) -> None:
    public = PublicSet(sample.name, sample.name)
    case = Case.measure(sample.parent, public, ("fake", str(encoder)), 0)
    data = public.copy(sample.parent, tmp_path)
    assert cli.main(["queries", str(data)]) == 0
    calibrate = ["calibrate", str(data), "--encoder", str(encoder), "--no-promote"]
    splits = {"human": case.own, "generated": case.default}
    for split, cut in splits.items():
        releases = tmp_path / split
        assert cli.main([*calibrate, "--releases", str(releases), "--split", split]) == 0
        manifest = verify(releases / release_ids(releases)[0])
        assert (manifest.policy.kind, manifest.policy.tau) == (cut.kind, cut.tau)
        heldout = manifest.metrics["heldout"]
        effect = case.own.human if split == "human" else case.default.generated
        assert effect.kept.mean == pytest.approx(heldout.kept_fraction)
        assert effect.lost.mean == pytest.approx(heldout.accuracy.mean - heldout.accuracy_at_tau.mean, abs=0.02)
    releases = tmp_path / "certified"
    cli.main([*calibrate, "--releases", str(releases), "--split", "generated", "--max-loss", "0.05"])
    policy = verify(releases / release_ids(releases)[0]).policy
    assert (policy.kind, policy.tau) == (case.certified.kind, case.certified.tau)


def test_a_part_of_a_folder_is_a_data_set_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "both"
    (source / "qrels").mkdir(parents=True)
    for name, key in (("corpus", "d"), ("queries", "q")):
        lines = [
            json.dumps({"_id": f"{part}:{key}{n}", "text": f"{part} {n}"}) for part in ("one", "two") for n in (1, 2)
        ]
        (source / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    rows = ["query-id\tcorpus-id\tscore", "one:q1\tone:d1\t1", "two:q1\ttwo:d1\t1", "two:q2\tone:d2\t1"]
    (source / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "to").mkdir()
    (tmp_path / "spool").mkdir()
    copy = PublicSet("two", "both", "two").copy(tmp_path, tmp_path / "to")
    dataset = read_dataset(copy, "human", tmp_path / "spool")
    assert [document.id for document in dataset.documents] == ["two:d1", "two:d2"]
    assert [query.id for query in dataset.answerable] == ["two:q1"]


def test_the_table_that_ships_is_the_page() -> None:
    page = (ROOT / "docs" / "benchmarks" / "generated-queries.md").read_text(encoding="utf-8")
    table = read_table()
    rows = {
        (encoder, cells[0]): cells
        for encoder, body in re.findall(r"### (\S+)\n\n(\| set \| documents .*?)\n\n", page, re.DOTALL)
        for cells in (line.strip("| ").split(" | ") for line in body.splitlines()[2:])
    }
    assert {*rows} == {(each.encoder, each.set) for each in table}
    for each in table:
        cells = rows[each.encoder, each.set]
        assert cells[-3].startswith(f"{share(each.accuracy_generated)} ")
        assert cells[-2].startswith(f"{share(each.accuracy_human)} ")


def test_what_is_written_can_be_read(sample: Path, encoder: Path, tmp_path: Path) -> None:
    case = Case.measure(sample.parent, PublicSet(sample.name, sample.name), ("fake", str(encoder)), 0)
    write_shipped([case, case], tmp_path / SHIPPED.name)
    rows = json.loads((tmp_path / SHIPPED.name).read_text())
    assert [type(measured_sets([case])[0])(**row) for row in rows] == measured_sets([case, case])
