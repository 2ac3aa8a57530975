"""The lexical share is added where words find what the encoder misses, and left out where they mislead."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.acceptance.better_lists import GRID, PROVISIONAL_WEIGHT
from taugate.registry.catalog import current_id
from taugate.release.layout import GOLDEN, LEXICAL, OUTCOMES, REFERENCE, REPORT
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, arguments, refusal
from tests.fake_encoder import write_fake_encoder

DOCUMENTS, QUERIES = 40, 120


@pytest.fixture
def run(capfd: Printed) -> Capture:
    return Capture(capfd)


def write_data(folder: Path, documents: list[str], queries: list[str], relevant: list[int], **fields: str) -> Path:
    """Write a data set whose query i has one relevant document."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": f"d{row}", "text": text}) for row, text in enumerate(documents)]
    asked = [json.dumps({"_id": f"q{row}", "text": text} | fields) for row, text in enumerate(queries)]
    qrels = [f"q{row}\td{document}\t1" for row, document in enumerate(relevant)]
    for name, lines in (
        ("corpus.jsonl", corpus),
        ("queries.jsonl", asked),
        ("qrels/test.tsv", ["query-id\tcorpus-id\tscore", *qrels]),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_helped(folder: Path, **fields: str) -> tuple[Path, Path]:
    """Documents are told apart by a part number, which the encoder does not know."""
    documents = [f"the pump of kind {row % 5} has part number x{row}" for row in range(DOCUMENTS)]
    relevant = [row % DOCUMENTS for row in range(QUERIES)]
    queries = [f"which pump of kind {row % 5} is x{row} {copy}" for copy, row in enumerate(relevant)]
    encoder = write_fake_encoder(folder / "encoder", [f"the pump of kind {row} has part number" for row in range(5)])
    return write_data(folder / "data", documents, queries, relevant, **fields), encoder


def write_misled(folder: Path) -> tuple[Path, Path]:
    """The encoder knows the subject of a query; its other words are those of another document."""
    documents = [f"subject{row}" if row < DOCUMENTS // 2 else f"decoy{row} note{row}" for row in range(DOCUMENTS)]
    relevant = [row % (DOCUMENTS // 2) for row in range(QUERIES)]
    decoys = [DOCUMENTS // 2 + (7 * row) % (DOCUMENTS // 2) for row in range(QUERIES)]
    queries = [f"subject{row} decoy{decoy} note{decoy}" for row, decoy in zip(relevant, decoys, strict=True)]
    encoder = write_fake_encoder(folder / "encoder", [f"subject{row}" for row in range(DOCUMENTS // 2)])
    return write_data(folder / "data", documents, queries, relevant), encoder


def test_largest_accepted_share_is_served(tmp_path: Path, run: Capture) -> None:
    code, manifest, _ = run(write_helped(tmp_path)[0], tmp_path / "releases", tmp_path / "encoder")
    assert code == 0
    record = manifest["lexical"]
    tried = [candidate for candidate in manifest["gate"] if candidate["kind"] == "lexical"]
    assert (record["k1"], record["b"]) == (0.9, 0.4)
    assert record["sha256"] == manifest["files"][LEXICAL]["sha256"]
    assert len(tried) == len(GRID)
    admitted = [weight for weight, candidate in zip(GRID, tried, strict=True) if candidate["admitted"]]
    assert record["weight"] == max(admitted), "no query chooses among admitted weights"
    assert manifest["metrics"]["heldout"]["accuracy"]["mean"] > 0.99
    release = load(tmp_path / "releases" / str(current_id(tmp_path / "releases")))
    top = release.retriever.index.search(release.retriever.encode(["which pump of kind 2 is x17"]), 1)
    assert isinstance(release.retriever.index, HybridIndex)
    assert release.documents[int(top.positions[0, 0])].id == "d17"


def test_share_that_misleads_is_left_out(tmp_path: Path, run: Capture) -> None:
    code, manifest, errors = run(write_misled(tmp_path)[0], tmp_path / "releases", tmp_path / "encoder")
    assert code == 0
    assert "lexical" not in manifest
    assert LEXICAL not in manifest["files"]
    assert not any(candidate["admitted"] for candidate in manifest["gate"])
    assert "lexical share: off, because no weight is shown to help" in errors


def test_given_weight_is_used_and_judged(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_misled(tmp_path)
    _, manifest, _ = run(data, tmp_path / "releases", encoder, "--lexical", "0.4")
    (record,) = manifest["gate"]
    assert manifest["lexical"]["weight"] == 0.4
    assert (record["candidate"], record["admitted"]) == ("lexical share, weight 0.4", False)


def test_generated_queries_do_not_choose_the_weight(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_helped(tmp_path, origin="crop")
    _, manifest, errors = run(data, tmp_path / "releases", encoder)
    assert manifest["calibration"]["state"] == "provisional"
    assert manifest["lexical"]["weight"] == PROVISIONAL_WEIGHT
    assert manifest["gate"] == []
    assert "the default without enough queries by people to choose one" in errors


def test_off_gives_the_cosine_and_no_record(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_helped(tmp_path)
    _, manifest, _ = run(data, tmp_path / "releases", encoder, "--lexical", "off")
    assert "lexical" not in manifest
    assert manifest["gate"] == []


def test_off_equals_a_refused_share(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_misled(tmp_path)
    _, refused, _ = run(data, tmp_path / "refused", encoder)
    _, off, _ = run(data, tmp_path / "off", encoder, "--lexical", "off")
    assert [record["kind"] for record in refused["gate"]] == ["lexical"] * len(GRID)
    assert off["gate"] == []
    for name in ("policy", "refusal", "metrics", "golden_tolerance"):
        assert off.get(name) == refused.get(name), name
    shared = refused["files"].keys() - {REPORT}  # the report shows the weights that were refused
    assert {GOLDEN, OUTCOMES, REFERENCE} < shared
    assert {name: off["files"][name] for name in shared} == {name: refused["files"][name] for name in shared}
    queries = [json.loads(line)["text"] for line in (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    searched = []
    for releases in (tmp_path / "refused", tmp_path / "off"):
        retriever = load(releases / str(current_id(releases))).retriever
        searched.append(retriever.index.search(retriever.encode(queries), 5))
    np.testing.assert_array_equal(searched[0].scores, searched[1].scores)
    np.testing.assert_array_equal(searched[0].positions, searched[1].positions)


def test_given_tau_keeps_the_weight_of_the_current_release(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_helped(tmp_path)
    _, first, _ = run(data, tmp_path / "releases", encoder)
    _, later, _ = run(data, tmp_path / "releases", encoder, "--policy", "similarity", "--tau", "0.9")
    _, alone, _ = run(data, tmp_path / "other", encoder, "--policy", "similarity", "--tau", "0.9")
    assert later["lexical"] == first["lexical"]
    assert "lexical" not in alone


def test_cheaper_search_is_compared_with_the_same_score(tmp_path: Path, run: Capture) -> None:
    data, encoder = write_helped(tmp_path)
    _, manifest, _ = run(data, tmp_path / "releases", encoder, "--index", "hnsw", "--projection", "query-pca")
    cheaper = [record for record in manifest["gate"] if record["kind"] != "lexical"]
    assert {record["kind"] for record in cheaper} == {"index", "projection"}
    assert all(record["accuracy"]["baseline"] > 0.99 for record in cheaper)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "11"])
def test_invalid_weight_is_refused(sample: Path, tmp_path: Path, capfd: Printed, weight: str) -> None:
    command = arguments(sample, tmp_path / "releases", tmp_path / "encoder", f"--lexical={weight}")
    message = refusal(command, tmp_path / "releases", capfd)
    assert message == f"--lexical {float(weight)}: give off, auto, or a weight above 0 and at most 10"
