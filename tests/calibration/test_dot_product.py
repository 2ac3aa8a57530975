"""Encoders and vectors that are compared by the dot product: export, calibration, update, requests with vectors."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import taugate
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import cheaper_encoder, exported_encoder
from taugate.calibration.export.model_folder import PROBES
from taugate.calibration.recalibration.request import inherited_encoder
from taugate.cli import main as cli
from taugate.errors import EncoderError, InputError
from taugate.registry.catalog import find
from taugate.release.manifest import Manifest
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import Printed
from tests.calibration.export.architectures import EXPORTED, model_folder
from tests.fake_encoder import write_fake_encoder
from tests.own_vectors import texts_of

Vectors = NDArray[Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights that declares the dot product and gives vectors of different lengths."""
    folder = tmp_path_factory.mktemp("dot")
    return model_folder(folder, *EXPORTED["BERT (bge, gte, MiniLM)"], dense=24, unit=False, similarity_fn_name="dot")


def test_declared_dot_product_ranks_like_the_inner_products_of_pytorch(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = exported_encoder(str(model))
    encoder = ExportedEncoder.load(folder)
    vectors = SentenceTransformer(str(model), device="cpu").encode(PROBES, batch_size=1).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths.max() > 1.02 * lengths.min()
    assert (encoder.config.dimension, encoder.config.similarity) == (25, "dot")
    assert encoder.config.max_norm == pytest.approx(1.3 * lengths.max(), rel=0.3)
    queries, documents = encoder.encode(PROBES, "query"), encoder.encode(PROBES, "document")
    expected = (vectors / lengths[:, None]) @ vectors.T / encoder.config.max_norm
    np.testing.assert_allclose(queries @ documents.T, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(documents, axis=1), 1, atol=1e-6)
    int8 = ExportedEncoder.load(cheaper_encoder(folder, "int8", PROBES))
    assert (int8.encode(PROBES, "query") * queries).sum(axis=1).min() > 0.95


def test_similarity_option_overrides_the_folder_but_not_an_export(model: Path) -> None:
    by_cosine = exported_encoder(str(model), InputOptions(similarity="cosine"))
    assert ExportedEncoder.load(by_cosine).config.model_dump(include={"dimension", "max_norm"}) == {"dimension": 24}
    with pytest.raises(EncoderError, match="was exported for --similarity cosine; leave the option out"):
        exported_encoder(str(by_cosine), InputOptions(similarity="dot"))
    assert exported_encoder(str(by_cosine), InputOptions(similarity="cosine")) == by_cosine


def calibrate(data: Path, releases: Path, *options: str) -> Manifest:
    command = ["calibrate", str(data), "--releases", str(releases), "--refuse", "off", "--lexical", "off", "--verbose"]
    assert cli.main([*command, *options]) in {0, 4}
    return verify_searchable(find(releases))


@pytest.fixture(scope="module")
def source(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sample with an encoder's vectors of many lengths, and this encoder."""
    folder = tmp_path_factory.mktemp("dot")
    data = Path(shutil.copytree(sample, folder / "data"))
    texts = {name: texts_of(data, f"{name}.jsonl") for name in ("corpus", "queries")}
    encoder = write_fake_encoder(folder / "encoder", [*texts["corpus"], *texts["queries"]], max_norm=600)
    long = ExportedEncoder.load(encoder)
    rng = np.random.default_rng(0)
    for name, stored, role in (("corpus", "vectors", "document"), ("queries", "queries", "query")):
        vectors = long.encode(texts[name], role)[:, :-1]  # type: ignore[arg-type]  # of the literals above
        np.save(data / f"{stored}.npy", vectors * (1 if role == "document" else rng.uniform(1, 9, (len(vectors), 1))))
    return data, encoder


def test_releases_by_dot_product_find_the_largest_inner_products(
    source: tuple[Path, Path], tmp_path: Path, capsys: Printed
) -> None:
    data, encoder = source
    documents, queries = (np.load(data / f"{name}.npy").astype(np.float64) for name in ("vectors", "queries"))
    products = queries @ documents.T
    ids = [json.loads(line)["_id"] for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    own = calibrate(data, tmp_path / "own", "--similarity", "dot")
    encoded = calibrate(data, tmp_path / "encoded", "--encoder", str(encoder), "--accept-vectors")
    printed = capsys.readouterr().err
    assert "queries and documents are compared by the dot product: a score is" in printed
    assert (own.encoder.dimension, own.encoder.similarity, encoded.encoder.max_norm) == (129, "dot", 600)
    assert own.metrics["heldout"].accuracy == encoded.metrics["heldout"].accuracy
    text = texts_of(data, "queries.jsonl")[3]
    for releases in (tmp_path / "own", tmp_path / "encoded"):
        with taugate.open(releases) as release:
            found = release.search(vector=queries[3].tolist(), threshold=-1)
            assert [result.id for result in found.results] == [ids[row] for row in np.argsort(-products[3])[:5]]
            with pytest.raises(InputError, match="vector: has 129 numbers, and those of the release have 128"):
                release.search(vector=[*queries[3].tolist(), 0.0])
    with taugate.open(tmp_path / "encoded") as release:
        assert [result.id for result in release.search(text, threshold=-1).results] == [r.id for r in found.results]


def test_update_warns_of_vectors_beyond_the_largest_length(
    source: tuple[Path, Path], tmp_path: Path, capsys: Printed
) -> None:
    data = Path(shutil.copytree(source[0], tmp_path / "data"))
    before = calibrate(data, tmp_path / "releases", "--similarity", "dot")
    assert inherited_encoder(tmp_path, before).input_options.similarity == "dot"  # of a recalibration
    documents = np.load(data / "vectors.npy")
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write('{"_id": "new", "text": "a new document"}\n')
    np.save(data / "vectors.npy", np.vstack([documents, 99 * documents[:1]]))
    assert cli.main(["update", str(data), "--releases", str(tmp_path / "releases"), "--no-promote"]) in {0, 4}
    assert "1 of 504 checked documents have vectors longer than" in capsys.readouterr().err
    after = verify_searchable(max((tmp_path / "releases").glob("2*")))
    assert (after.encoder, after.data.documents) == (before.encoder, 504)
    report = (tmp_path / "releases" / after.release_id / "report.html").read_text(encoding="utf-8")
    assert "Vectors have 129 dimensions, compared by the dot product" in report
