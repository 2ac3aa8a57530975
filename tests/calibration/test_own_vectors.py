"""A calibration on vectors that come with the data set: files, types, order, faults, and the commands that follow."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.registry.catalog import find
from taugate.release.manifest import Manifest
from taugate.release.verify import verify_searchable
from tests.calibration.commands import Printed
from tests.own_vectors import texts_of, with_vectors

Vectors = NDArray[Any]


@pytest.fixture(scope="module")
def source(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Vectors, Vectors]:
    return with_vectors(sample, encoder, tmp_path_factory.mktemp("data") / "own")


@pytest.fixture
def data(source: tuple[Path, Vectors, Vectors], tmp_path: Path) -> Path:
    return Path(shutil.copytree(source[0], tmp_path / "own"))


def calibrate(data: Path, releases: Path, *options: str) -> Manifest:
    assert cli.main(["calibrate", str(data), "--releases", str(releases), *options]) in {0, 4}
    return verify_searchable(find(releases))


def read_documents(data: Path, tmp_path: Path) -> tuple[Vectors, list[str]]:
    """Read the vectors of a data set; returns those of the documents, and the notes."""
    spool = tmp_path / f"spool{len([*tmp_path.iterdir()])}"
    spool.mkdir()
    vectors = read_dataset(data, "test", spool, own_vectors=True).vectors
    assert vectors is not None
    return vectors.documents, vectors.notes


def fault(data: Path, tmp_path: Path, capsys: Printed, *options: str) -> str:
    """Calibrate in vain; returns the message."""
    assert cli.main(["calibrate", str(data), "--releases", str(tmp_path / "none"), *options]) == 2
    assert not (tmp_path / "none").exists() or not [*(tmp_path / "none").glob("2*")]
    return capsys.readouterr().err.strip().splitlines()[-1].replace(str(data), "DATA")


def test_release_of_own_vectors_measures_what_the_encoder_measures(data: Path, encoder: Path, tmp_path: Path) -> None:
    own = calibrate(data, tmp_path / "own-releases", "--refuse", "off")
    encoded = calibrate(data, tmp_path / "releases", "--refuse", "off", "--encoder", str(encoder))
    assert (own.metrics, own.policy.tau) == (encoded.metrics, encoded.policy.tau)
    assert (own.encoder.runtime, own.scorer.name, own.encoder.dimension) == ("none", "vectors", 128)
    assert not [name for name in own.files if name.startswith("encoder")]
    assert {"vectors", "query_vectors"} <= own.data.sha256.keys()


def test_same_vectors_give_the_same_digest(data: Path, tmp_path: Path) -> None:
    first, second = (calibrate(data, tmp_path / name, "--refuse", "off") for name in ("one", "two"))
    assert first.release_id[-12:] == second.release_id[-12:]


@pytest.mark.parametrize("kind", ["float16", "float64", "bfloat16", "float32"])
def test_vectors_of_any_float_type_are_read_and_normalized(
    data: Path, source: tuple[Path, Vectors, Vectors], tmp_path: Path, kind: str
) -> None:
    _, documents, _ = source
    (data / "vectors.npy").unlink()
    stored = torch.from_numpy(3 * documents).to(getattr(torch, kind))
    save_file({"vectors": stored}, data / "vectors.safetensors")
    vectors, notes = read_documents(data, tmp_path)
    assert np.einsum("ij,ij->i", vectors, documents).min() > 0.9999
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert "normalized because similarity is the cosine" in notes[0]


def test_parquet_names_its_rows_in_any_order(data: Path, source: tuple[Path, Vectors, Vectors], tmp_path: Path) -> None:
    _, documents, _ = source
    (data / "vectors.npy").unlink()
    ids = [json.loads(line)["_id"] for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    order = np.random.default_rng(0).permutation(len(ids))
    table = {"_id": [ids[row] for row in order], "embedding": [documents[row].tolist() for row in order]}
    pq.write_table(pa.table(table), data / "vectors.parquet")
    np.testing.assert_array_equal(read_documents(data, tmp_path)[0], documents)


def test_document_without_text_keeps_its_row_and_has_no_vector(
    data: Path, source: tuple[Path, Vectors, Vectors], tmp_path: Path
) -> None:
    _, documents, _ = source
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    (data / "corpus.jsonl").write_text("\n".join([*lines[:9], '{"_id": "empty", "text": ""}', *lines[9:]]))
    np.testing.assert_array_equal(read_documents(data, tmp_path)[0], documents)
    np.save(data / "vectors.npy", np.insert(documents, 9, 0.5, axis=0))
    np.testing.assert_array_equal(read_documents(data, tmp_path)[0], documents)


def changed(vectors: Vectors, row: int, value: float) -> Vectors:
    copy = vectors.copy()
    copy[row] = value
    return copy


def test_invalid_vectors_are_named_by_row(
    data: Path, source: tuple[Path, Vectors, Vectors], tmp_path: Path, capsys: Printed
) -> None:
    _, documents, queries = source
    name = json.loads((data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[17])["_id"]
    cases = {
        "holds NaN or infinity (such rows in all: 1)": changed(documents, 17, np.nan),
        "is zero (such rows in all: 1)": changed(documents, 17, 0),
    }
    for problem, vectors in cases.items():
        np.save(data / "vectors.npy", vectors)
        expected = f"DATA/vectors.npy: row 17 (from 0, '{name}'): {problem}"
        assert expected in fault(data, tmp_path, capsys)
    np.save(data / "vectors.npy", documents[:-3])
    assert "holds 500 vectors, and corpus.jsonl has 503 lines" in fault(data, tmp_path, capsys)
    np.save(data / "vectors.npy", documents[:, :100])
    assert "its vectors have 128 numbers, and those of vectors.npy 100" in fault(data, tmp_path, capsys)
    np.save(data / "vectors.npy", documents.astype(np.int32))
    assert "holds int32 numbers of shape (503, 128)" in fault(data, tmp_path, capsys)
    (data / "vectors.npy").write_bytes(b"not an array")
    assert "cannot be read as an array of NumPy" in fault(data, tmp_path, capsys)
    np.save(data / "vectors.npy", documents)
    np.save(data / "queries.npy", queries)
    (data / "queries.parquet").write_bytes(b"")
    assert "queries.parquet also exists; remove one" in fault(data, tmp_path, capsys)


def test_parquet_row_of_another_length_is_named(data: Path, tmp_path: Path, capsys: Printed) -> None:
    (data / "queries.npy").unlink()
    rows = [[0.5] * 128 for _ in texts_of(data, "queries.jsonl")]
    rows[41].pop()
    pq.write_table(pa.table({"vector": rows}), data / "queries.parquet")
    assert "row 41 (from 0): has 127 numbers, and row 0 has 128" in fault(data, tmp_path, capsys)


@pytest.mark.parametrize(
    "option",
    [("--precision", "int8"), ("--engine", "milvus"), ("--query-prompt", "query: "), ("--rerank", "auto:late")],
    ids=lambda pair: pair[0],
)
def test_option_that_needs_an_encoder_is_refused_in_one_sentence(
    data: Path, tmp_path: Path, capsys: Printed, option: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUGATE_ENGINE_URL", str(tmp_path / "milvus.db"))
    assert "needs an encoder, but the data set comes with vectors" in fault(data, tmp_path, capsys, *option)


def test_vectors_do_not_replace_the_encoder_in_service_unless_named(
    data: Path, encoder: Path, tmp_path: Path, capsys: Printed
) -> None:
    releases = tmp_path / "releases"
    calibrate(data, releases, "--encoder", str(encoder))
    assert cli.main(["calibrate", str(data), "--releases", str(releases)]) == 2
    assert "was encoded by fake, not by vectors" in capsys.readouterr().err
    assert calibrate(data, releases, "--encoder", "vectors").encoder.runtime == "none"


def test_update_takes_new_vectors_and_refuses_those_of_another_model(
    data: Path, source: tuple[Path, Vectors, Vectors], tmp_path: Path, capsys: Printed
) -> None:
    _, documents, queries = source
    releases = tmp_path / "releases"
    before = calibrate(data, releases)
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "new", "text": "a new document about nothing in particular"}) + "\n")
    noise = np.random.default_rng(0).standard_normal(documents.shape).astype(np.float32)
    np.save(data / "vectors.npy", np.vstack([noise, documents[:1]]))
    update = ["update", str(data), "--releases", str(releases), "--force"]
    assert cli.main(update) == 2
    assert "so another model made them" in capsys.readouterr().err
    np.save(data / "vectors.npy", np.vstack([documents, documents[:1]]))
    np.save(data / "queries.npy", 2 * queries)
    assert cli.main(update) == 0
    after = verify_searchable(find(releases))
    assert (after.data.documents, after.policy.tau) == (504, before.policy.tau)
    assert after.encoder == before.encoder


def test_projection_index_and_erasure_work_without_an_encoder(data: Path, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    options = ("--projection", "query-pca", "--index", "flat-int8", "--margin", "0.5")
    manifest = calibrate(data, releases, *options)
    assert manifest.projection is not None and manifest.index.kind == "flat-int8"
    document = json.loads((data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0])["_id"]
    erase = ["release", "erase", manifest.release_id, document, "--releases", str(releases)]
    assert cli.main(erase) == 0
    (erased,) = (path for path in releases.glob("2*") if path.name != manifest.release_id)
    assert verify_searchable(erased).data.documents == 502


def test_recalibration_takes_vectors_again(data: Path, tmp_path: Path, capsys: Printed) -> None:
    releases = tmp_path / "releases"
    calibrate(data, releases, "--k", "3")
    capsys.readouterr()
    assert cli.main(["recalibrate", str(data), "--releases", str(releases), "--json"]) in {0, 4}
    assert [*releases.glob("2*")]
