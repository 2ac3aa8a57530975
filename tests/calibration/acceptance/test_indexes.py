"""Indexes: how wide they look, what `auto` tries, and that what the gate admits is what is measured and served."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.acceptance import cheaper_search
from taugate.calibration.acceptance.baseline import GateState, SearchTrial
from taugate.calibration.acceptance.cheaper_search import (
    check_index_trainable,
    recall,
    requested_kinds,
    scan_scale,
    set_breadth,
    try_indexes,
)
from taugate.calibration.metrics.inputs import clusters
from taugate.cli import main as cli
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.rules import GateSettings
from taugate.registry.catalog import current_id, release_ids
from taugate.release.names import INDEX, MIN_FOR_CODES
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import ApproximateIndex, build
from taugate.retrieval.index.flat import FaissIndex, FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Printed
from tests.vectors import unit

N, D, QUERIES = 4000, 32, 1000


@pytest.fixture(scope="module")
def trial() -> SearchTrial:
    """Every query is near the one document that answers it."""
    rng = np.random.default_rng(5)
    documents = unit(rng.standard_normal((N, D)))
    answers = rng.permutation(N)[:QUERIES]
    vectors = unit(documents[answers] + 0.1 * rng.standard_normal((QUERIES, D)))
    queries = [LabelledQuery(f"q{row}", f"text {row}", {int(answer): 1}) for row, answer in enumerate(answers)]
    return SearchTrial.build(queries, vectors, documents, 5)


def started(trial: SearchTrial) -> tuple[SamplingUnits, SearchTrial, GateState]:
    """The units and the baseline of a trial, and what serves before anything is tried."""
    return SamplingUnits.from_clusters(clusters(trial.queries)), trial, GateState.exact(None, None, trial)


@pytest.mark.parametrize(
    ("documents", "first"),
    [(10_000, None), (10_001, "flat-int8"), (50_000, "flat-int8"), (50_001, "hnsw"), (1_000_001, "ivf-pq")],
)
def test_auto_kind_depends_on_corpus_size(documents: int, first: str | None) -> None:
    assert next(iter(requested_kinds("auto", documents)), None) == first


def test_auto_kind_depends_on_cost_of_encoder() -> None:
    """With an encoder that costs four times as much, four times as many documents cost as little beside it."""
    assert requested_kinds("auto", 40_000, 4.0) == ()
    assert requested_kinds("auto", 200_000, 4.0) == ("flat-int8",)
    assert requested_kinds("auto", 1_000_001, 4.0) == ("ivf-pq", "flat-int8")


def test_cheap_encoder_does_not_lower_limits(encoder: Path) -> None:
    assert scan_scale(ExportedEncoder.load(encoder), 384) == 1


def test_named_kind_is_tried_alone() -> None:
    assert requested_kinds("hnsw", 10) == ("hnsw",)
    assert requested_kinds("flat", 10**7) == ()
    check_index_trainable("ivf-pq", MIN_FOR_CODES)
    with pytest.raises(InputError, match=f"--index ivf-pq.*{MIN_FOR_CODES}.*{MIN_FOR_CODES - 1}"):
        check_index_trainable("ivf-pq", MIN_FOR_CODES - 1)


class Half:
    """Finds the first half of the exact results and random documents."""

    def __init__(self, flat: FlatIndex) -> None:
        self.flat = flat

    def search(self, queries: np.ndarray, k: int) -> TopK:
        exact = self.flat.search(queries, k)
        positions = exact.positions.copy()
        positions[:, k // 2 :] = np.random.default_rng(0).integers(0, N, size=(len(queries), k - k // 2))
        return TopK(exact.scores, positions)


class Copies:
    """Finds the second half of each group of four copies where it can."""

    def __init__(self, flat: FlatIndex) -> None:
        self.flat = flat

    def search(self, queries: np.ndarray, k: int) -> TopK:
        exact = self.flat.search(queries, k)
        return TopK(exact.scores, np.where(np.arange(k) >= 8, exact.positions + 2, exact.positions))


def test_recall_is_share_of_exact_results(trial: SearchTrial) -> None:
    flat = FlatIndex.build(trial.documents)
    exact = flat.search(trial.vectors, 10)
    assert recall(flat, flat, trial.vectors, exact) == 1
    assert recall(Half(flat), flat, trial.vectors, exact) == pytest.approx(0.5, abs=0.005)


def test_recall_accepts_equal_documents(trial: SearchTrial) -> None:
    """Four copies of every document: the last two of ten are two of four, and it does not matter which."""
    documents = np.repeat(trial.documents[:1000], 4, axis=0)
    flat = FlatIndex.build(documents)
    exact = flat.search(trial.vectors, 10)
    assert recall(Copies(flat), flat, trial.vectors, exact) == 1


def test_breadth_is_smallest_with_recall(trial: SearchTrial) -> None:
    flat = FlatIndex.build(trial.documents)
    exact = flat.search(trial.vectors, 10)
    index = build("ivf-flat", trial.documents)
    assert isinstance(index, ApproximateIndex)
    breadths = []
    for margin in (0.4, 0.04, 0.004):
        set_breadth(index, flat, trial.vectors, 10, margin)
        breadths.append(index.breadth)
        assert recall(index, flat, trial.vectors, exact) >= 1 - margin / 4
        index.breadth = index.breadth * 2 // 3  # the step before, or less
        assert recall(index, flat, trial.vectors, exact) < 1 - margin / 4
    assert breadths == sorted(set(breadths))


def test_graph_breadth_exceeds_results(trial: SearchTrial) -> None:
    """The list of candidates is never shorter than the results and some to spare."""
    flat, index = FlatIndex.build(trial.documents), build("hnsw", trial.documents)
    assert isinstance(index, ApproximateIndex)
    set_breadth(index, flat, trial.vectors, 20, 0.9)
    assert index.breadth == 48, "the first of the steps above 20 + 16"


def test_index_adds_projection_loss(trial: SearchTrial) -> None:
    """What exact search lost out of fold is lost by the index as well, whatever it finds in sample."""
    unseen = trial.outcomes()
    unseen.accuracy[:100], unseen.ndcg[:100] = 0, 0
    units, baseline, before = started(trial)
    records, indexed = try_indexes(
        units, baseline, replace(before, outcomes=unseen), ("flat-float16",), GateSettings(0.005, 0.95)
    )
    assert records[0].accuracy.candidate == pytest.approx(unseen.accuracy.mean())
    assert not records[0].admitted
    assert isinstance(indexed.accepted.index, FaissIndex)
    assert indexed.accepted.index.kind == "flat"


@pytest.mark.parametrize("kind", ["flat-float16", "flat-int8", "hnsw", "ivf-flat"])
def test_lossless_index_is_accepted(trial: SearchTrial, kind: str) -> None:
    (record,), indexed = try_indexes(*started(trial), (kind,), GateSettings(0.005, 0.95))
    assert record.admitted
    assert isinstance(indexed.accepted.index, FaissIndex)
    assert indexed.accepted.index.kind == indexed.accepted.index_record.kind == kind
    assert indexed.accepted.index_record.depth == 10
    assert indexed.accepted.index_record.recall >= {"flat-float16": 0.95, "flat-int8": 1}.get(kind, 0.99875)
    assert set(record.gain) == {
        f"{prefix}{name}"
        for prefix in ("", "baseline_")
        for name in ("bytes_per_document", "disk_bytes_per_document", "milliseconds", "queries_per_second")
    }
    assert all(value > 0 for value in record.gain.values())


def test_rejected_index_keeps_exact_search(trial: SearchTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """598 queries without a loss are needed at 95 %, and twice as much evidence for two candidates."""
    monkeypatch.setattr(cheaper_search, "SMALLER", 0.0)  # a graph of such short vectors is larger
    few = SearchTrial.build(trial.queries[:600], trial.vectors[:600], trial.documents, 5)
    records, indexed = try_indexes(*started(few), ("flat-float16", "hnsw"), GateSettings(0.005, 0.95))
    assert [record.admitted for record in records] == [False, False]
    assert isinstance(indexed.accepted.index, FaissIndex)
    assert indexed.accepted.index.kind == indexed.accepted.index_record.kind == "flat"
    assert (
        indexed.accepted.index_record.recall,
        indexed.accepted.index_record.depth,
        indexed.accepted.index_record.breadth,
    ) == (None, None, None)


def test_exact_index_needs_no_evidence(trial: SearchTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten queries show nothing, but what is proven to be equal loses nothing."""
    monkeypatch.setattr(cheaper_search, "SMALLER", 0.0)
    few = SearchTrial.build(trial.queries[:10], trial.vectors[:10], trial.documents, 5)
    records, indexed = try_indexes(*started(few), ("hnsw", "flat-int8"), GateSettings(0.005, 0.95))
    assert [(record.admitted, record.statement) for record in records] == [(False, None), (True, None)]
    assert records[1].accuracy.loss.mean == records[1].ndcg.loss.mean == 0
    assert indexed.accepted.index_record.kind == "flat-int8"
    assert indexed.accepted.index_record.recall == 1


def test_auto_leaves_out_index_that_is_hardly_smaller(trial: SearchTrial) -> None:
    """A graph of vectors with 32 components is larger than these, and codes of a byte each are a quarter."""
    records, indexed = try_indexes(*started(trial), ("hnsw", "flat-int8"), GateSettings(0.005, 0.95))
    assert [record.candidate for record in records] == ["flat-int8"]
    (skipped,) = indexed.accepted.skipped
    assert (skipped.kind, skipped.reason) == ("index", "not 1.5 times smaller per document than exact search")
    assert skipped.candidate.startswith("hnsw")
    assert skipped.gain is not None
    assert 1.5 * skipped.gain["bytes_per_document"] > skipped.gain["baseline_bytes_per_document"]


def test_first_accepted_index_is_used(trial: SearchTrial) -> None:
    records, indexed = try_indexes(*started(trial), ("flat-float16", "flat-int8"), GateSettings(0.005, 0.95))
    assert isinstance(indexed.accepted.index, FaissIndex)
    assert indexed.accepted.index.kind == "flat-float16"
    assert [record.candidate for record in records] == ["flat-float16", "flat-int8"]


def calibrate(data: Path, releases: Path, encoder: Path, *more: str) -> int:
    options = ["--releases", str(releases), "--encoder", str(encoder), "--lexical", "off"]
    return cli.main(["calibrate", str(data), "--verbose", *options, *more])


LENIENT = ("--margin", "0.05", "--holdout", "0")


@pytest.fixture(scope="module", params=["flat-float16", "flat-int8", "hnsw", "ivf-flat"])
def indexed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path
) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    assert calibrate(sample, folder, encoder, "--index", request.param, *LENIENT) == 0
    return folder / current_id(folder)


@pytest.mark.slow
def test_served_scores_equal_measured(indexed: Path) -> None:
    """The golden queries are checked at load; here the scores of what is served, by what the index stores."""
    manifest = json.loads((indexed / "manifest.json").read_bytes())
    (record,) = manifest["gate"]
    assert record["admitted"]
    assert record["kind"] == "index"
    assert record["candidate"].startswith(manifest["index"]["kind"])
    retriever = load(indexed).retriever
    assert retriever.index.kind == manifest["index"]["kind"]  # type: ignore[attr-defined]  # a FlatIndex here
    (answer,) = retriever.search([Query("a building permit", k=5)])
    vectors = retriever.vectors(["a building permit"])
    np.testing.assert_array_equal(answer.scores, retriever.index.score(vectors, answer.positions[None])[0])


def test_results_are_independent_of_batch(indexed: Path, sample: Path) -> None:
    """Alone, among others, and beside one that asks for more: an approximate index finds more in a longer list."""
    retriever = load(indexed).retriever
    texts = [json.loads(line)["text"] for line in (sample / "queries.jsonl").open(encoding="utf-8")][:100]
    alone = [retriever.search([Query(text, k=5)])[0] for text in texts]
    mixed = retriever.search([item for text in texts for item in (Query(text, k=5), Query(text, k=100))])
    for first, beside, longer in zip(alone, mixed[::2], mixed[1::2], strict=True):
        np.testing.assert_array_equal(first.positions, beside.positions)
        np.testing.assert_array_equal(first.scores, beside.scores)
        assert longer.considered == 100


def test_report_shows_accepted_index(indexed: Path) -> None:
    page = (indexed / "report.html").read_text(encoding="utf-8")
    section = page[page.index('id="gate"') : page.index('id="comparison"')]
    manifest = json.loads((indexed / "manifest.json").read_bytes())
    assert "accepted, in use" in section
    assert manifest["gate"][0]["candidate"] in section
    (row,) = re.findall(r"<tr class=\"now\">.*?</tr>", section)
    assert row.count('class="interval"') == 2
    assert "bytes per document" in row


@pytest.mark.slow
def test_same_command_gives_same_digest(indexed: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    kind = json.loads((indexed / "manifest.json").read_bytes())["index"]["kind"]
    assert calibrate(sample, tmp_path, encoder, "--index", kind, *LENIENT) == 0
    assert current_id(tmp_path)[-12:] == indexed.name[-12:]


def test_rejected_index_is_recorded(sample: Path, encoder: Path, tmp_path: Path) -> None:
    """352 queries cannot show that half a point is not lost, and the page says that nothing of it serves."""
    assert calibrate(sample, tmp_path, encoder, "--index", "flat-float16", "--margin", "0.005") == 0
    release = tmp_path / current_id(tmp_path)
    manifest = json.loads((release / "manifest.json").read_bytes())
    assert manifest["index"] == {"kind": "flat", "metric": "cosine", "documents": 503}
    assert [record["admitted"] for record in manifest["gate"]] == [False]
    page = (release / "report.html").read_text(encoding="utf-8")
    assert "rejected" in page
    assert "in use" not in page[page.index('id="gate"') : page.index('id="comparison"')].split("</table>")[0]


def test_untrainable_index_is_refused_early(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    assert calibrate(sample, tmp_path, encoder, "--index", "ivf-pq") == 2
    message = capfd.readouterr().err
    assert "--index ivf-pq" in message
    assert "503" in message
    assert not release_ids(tmp_path)
    assert not (tmp_path / INDEX).exists()
