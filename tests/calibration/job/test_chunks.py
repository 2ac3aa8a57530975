"""Whole calibrations of documents in chunks and with metadata."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.registry.erasure import erase
from taugate.release.layout import ENCODER_FOLDER, METADATA, REFERENCE
from taugate.release.queries import Reference
from taugate.release.verify import verify
from taugate.retrieval.documents.filters import OneOf, Range, all_of
from taugate.retrieval.documents.store import MAX_FIELDS
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.golden import is_answered
from taugate.retrieval.index.approximate import load_index
from taugate.retrieval.reader import Release, load
from taugate.service.drift.analysis import Canary
from tests.calibration.commands import Capture, Printed, arguments, refusal, small
from tests.calibration.job.test_oracle import compare
from tests.fake_encoder import write_fake_encoder
from tests.oracle import transcribe

DOCUMENTS, CHUNKS = 60, 4
OPTIONS = {"--k": 5, "--bootstraps": 60, "--sample-size": 50, "--seed": 3, "--holdout": 0, "--lexical": "off"}
SETTINGS = [str(part) for pair in OPTIONS.items() for part in pair]


@dataclass(frozen=True)
class Calibrated:
    """A data set with its encoder, and the release made of it."""

    data: Path
    encoder: Path
    releases: Path
    manifest: dict

    @property
    def folder(self) -> Path:
        return self.releases / self.manifest["release_id"]

    def load(self) -> Release:
        return load(self.folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """60 documents of four chunks, which lie apart in the file; two queries quote chunks of each of them."""
    rng = random.Random(2)  # noqa: S311 (no secret)
    words = [f"word{number}" for number in range(500)]
    folder = tmp_path_factory.mktemp("chunks")
    subjects = [rng.sample(words, 8) for _ in range(DOCUMENTS)]
    texts = {
        (d, c): rng.sample(subjects[d], 4) + rng.sample(words, 10) for c in range(CHUNKS) for d in range(DOCUMENTS)
    }
    chunks = [
        {"_id": f"d{d}#{c}", "parent": f"d{d}", "span": [c, c + 1], "text": " ".join(text)}
        for (d, c), text in texts.items()
    ]
    queries = []
    for row in range(2 * DOCUMENTS):
        quoted = texts[row % DOCUMENTS, rng.randrange(CHUNKS)]
        queries.append({"_id": f"q{row}", "text": " ".join(rng.sample(quoted, 3) + rng.sample(words, 5))})
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    for name, records in (("corpus.jsonl", chunks), ("queries.jsonl", queries)):
        (data / name).write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    write_qrels(data, "test", [(f"q{row}", f"d{row % DOCUMENTS}") for row in range(2 * DOCUMENTS)])
    return data, write_fake_encoder(folder / "encoder", [" ".join(text) for text in texts.values()])


def write_qrels(data: Path, split: str, rows: list[tuple[str, str]]) -> None:
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{name}\t1" for query, name in rows)]
    (data / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def calibrated(corpus: tuple[Path, Path], tmp_path: Path, capfd: Printed) -> Calibrated:
    _, manifest, _ = Capture(capfd)(corpus[0], tmp_path / "releases", corpus[1], *SETTINGS)
    return Calibrated(*corpus, tmp_path / "releases", manifest)


def vectors(calibrated: Calibrated) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """E(Q), E(D), and the positions of the chunks of the document that each query asks for."""
    texts = [json.loads(line)["text"] for line in (calibrated.data / "queries.jsonl").open(encoding="utf-8")]
    questions = ExportedEncoder.load(calibrated.folder / ENCODER_FOLDER).encode(texts, "query")
    passages = np.array(load_index(calibrated.folder, "flat", questions.shape[1]).vectors)
    correct = [[c * DOCUMENTS + row % DOCUMENTS for c in range(CHUNKS)] for row in range(len(texts))]
    return questions, passages, correct


def test_any_chunk_counts_as_correct(calibrated: Calibrated) -> None:
    questions, passages, correct = vectors(calibrated)
    oracle = transcribe(questions, passages, correct, k=5, m=60, l=50, seed=3)
    compare(calibrated.manifest, oracle)
    assert 0.2 < np.mean(oracle.accuracy) < 0.98


def test_random_documents_are_passages(calibrated: Calibrated) -> None:
    questions, passages, correct = vectors(calibrated)
    rng = np.random.default_rng(3)
    rng.integers(0, len(questions), size=(60, 50))
    drawn = rng.integers(0, len(passages), size=len(questions))
    reference = Reference.load(calibrated.folder / REFERENCE)
    similarity = (questions.astype(float) @ passages.astype(float).T).astype(np.float32)
    np.testing.assert_array_equal(reference.random, similarity[np.arange(len(questions)), drawn])
    best = [similarity[row, positions].max() for row, positions in enumerate(correct)]
    np.testing.assert_array_equal(reference.correct, best)


@pytest.mark.parametrize("more", [[], ["--max-loss", "0.3", "--policy", "similarity", "--metric", "ndcg"]])
@pytest.mark.slow
def test_document_label_equals_best_chunk_label(
    calibrated: Calibrated, tmp_path: Path, capfd: Printed, more: list[str]
) -> None:
    questions, passages, correct = vectors(calibrated)
    pairs = zip(questions, correct, strict=True)
    best = [positions[int((passages[positions] @ query).argmax())] for query, positions in pairs]
    names = [f"d{position % DOCUMENTS}#{position // DOCUMENTS}" for position in best]
    write_qrels(calibrated.data, "best", [(f"q{row}", name) for row, name in enumerate(names)])
    manifests = [
        Capture(capfd)(calibrated.data, tmp_path / split, calibrated.encoder, *SETTINGS, *more, "--split", split)[1]
        for split in ("test", "best")
    ]
    one, other = manifests
    for part in ("policy", "metrics", "evidence", "isotropy"):
        assert one[part] == other[part], part
    chances = [each["calibration"]["accuracy"]["chance"] for each in manifests]
    passages = DOCUMENTS * CHUNKS
    missed = np.prod([(passages - CHUNKS - drawn) / (passages - drawn) for drawn in range(5)])
    assert chances == pytest.approx([1 - missed, 5 / passages])
    for figure in ("clusters", "effective_sample_size", "cosine_distance", "topics", "silhouette"):
        assert one["query_set"][figure] == other["query_set"][figure], figure
    assert one["query_set"]["clusters"] == DOCUMENTS
    assert one["evidence"]["unit"] == "document"


def test_golden_queries_name_documents(calibrated: Calibrated) -> None:
    release = calibrated.load()
    for query in release.golden:
        document, *found = query.relevant
        assert {name.partition("#")[0] for name in found} <= {document}
        assert found == [name for name in query.documents if name.partition("#")[0] == document]
    canary = Canary(release, release.retriever)
    assert canary.run().alike
    assert 0.2 < canary.run().accuracy == canary.accuracy_at_calibration
    passage = next(passage for passage in release.documents if passage.id == "d7#2")
    assert is_answered(next(query for query in release.golden if "d7" in query.relevant), [passage])
    assert not is_answered(next(query for query in release.golden if "d7" not in query.relevant), [passage])


def test_last_chunk_erases_golden_query(calibrated: Calibrated) -> None:
    (asked, *_) = calibrated.load().golden
    document = asked.relevant[0]
    all_but_one = erase(calibrated.releases, calibrated.manifest["release_id"], [f"{document}#{c}" for c in range(3)])
    left = {query.text: query for query in load(calibrated.releases / all_but_one.manifest.release_id).golden}
    assert document in left[asked.text].relevant
    assert set(left[asked.text].relevant) <= {document, f"{document}#3"}
    whole = erase(calibrated.releases, all_but_one.manifest.release_id, [f"{document}#3"])
    assert asked.text not in {query.text for query in load(calibrated.releases / whole.manifest.release_id).golden}


def with_metadata(data: Path, records: list[dict]) -> None:
    path = data / "corpus.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line, record in zip(lines, records, strict=True):
        line["metadata"] = record
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


RECORDS = [
    {
        "year": 1990 + row % 7,
        "språk": "sv" if row % 2 else None,
        "open": row % 3 == 0,
        "x": [1, True, "1", 1.5][row % 4],
    }
    if row % 5
    else {}
    for row in range(60)
]


@pytest.fixture
def run(capfd: Printed) -> Capture:
    return Capture(capfd)


def test_metadata_is_stored_reproducibly(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    _, plain, _ = run(data, tmp_path / "r", encoder)
    assert METADATA not in plain["files"]
    with_metadata(data, RECORDS)
    manifests = [run(data, tmp_path / folder, encoder)[1] for folder in ("a", "b")]
    assert len({manifest["release_id"][-12:] for manifest in (plain, *manifests)}) == 2
    assert manifests[0]["files"] == {**manifests[1]["files"], "report.html": manifests[0]["files"]["report.html"]}
    assert {**manifests[0]["policy"]} == plain["policy"]

    release = load(tmp_path / "a" / manifests[0]["release_id"])
    assert [*release.metadata.columns] == ["open", "språk", "x", "year"]
    rows = {
        (OneOf.of("x", True),): [row for row in range(60) if row % 5 and row % 4 == 1],
        (OneOf.of("x", 1),): [row for row in range(60) if row % 5 and row % 4 == 0],
        all_of(Range("year", gt=1992), OneOf.of("språk", "sv")): [
            row for row in range(60) if row % 5 and row % 7 > 2 and row % 2
        ],
    }
    for wanted, expected in rows.items():
        assert np.flatnonzero(release.metadata.where(wanted)).tolist() == expected


def test_damaged_metadata_is_detected(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, RECORDS)
    _, manifest, _ = run(data, tmp_path / "a", encoder)
    release = tmp_path / "a" / manifest["release_id"]
    content = bytearray((release / METADATA).read_bytes())
    content[-1] ^= 1
    (release / METADATA).write_bytes(content)
    with pytest.raises(ReleaseError, match=METADATA):
        verify(release)
    (release / METADATA).unlink()
    with pytest.raises(ReleaseError, match=METADATA):
        verify(release)


def test_too_many_field_names_are_rejected(tmp_path: Path, capfd: Printed) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, [{f"{row}-{name}": 1 for name in range(5)} for row in range(60)])
    said = refusal(arguments(data, tmp_path / "r", encoder), tmp_path / "r", capfd)
    assert said.startswith(f"{data / 'corpus.jsonl'}:{MAX_FIELDS // 5 + 1}: metadata has over {MAX_FIELDS} field names")


def test_maximum_number_of_fields(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, [{f"f{name}": row for name in range(MAX_FIELDS)} | {"none": None} for row in range(60)])
    _, manifest, _ = run(data, tmp_path / "r", encoder)
    assert len(load(tmp_path / "r" / manifest["release_id"]).metadata.columns) == MAX_FIELDS
