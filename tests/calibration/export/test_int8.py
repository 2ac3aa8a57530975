"""int8 weights: the product that was promised, vectors that depend on their text alone, and the gate before them."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from taugate.calibration.encoding.source import DEFAULT_ENCODER, cheaper_encoder, exported_encoder
from taugate.calibration.export.weights import quantize
from taugate.cli import main as cli
from taugate.errors import EncoderError, ReleaseError
from taugate.registry.catalog import current_id
from taugate.release.encoder import MODEL, WEIGHTS
from taugate.release.golden import GoldenQuery
from taugate.retrieval import golden
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.retriever import Retriever
from tests.calibration.commands import Printed
from tests.release.test_hostile_release import forge
from tests.sample_part import write_part

pytestmark = pytest.mark.slow

WIDTHS = (24, 40, 16)  # embedding, two layers


def two_layers(path: Path) -> list[np.ndarray]:
    """input_ids → embeddings → W₁ → W₂ beside W₃ of the same activations. Returns the tables."""
    rng = np.random.default_rng(0)
    shapes = [(50, WIDTHS[0]), (WIDTHS[0], WIDTHS[1]), (WIDTHS[1], WIDTHS[2]), (WIDTHS[1], WIDTHS[2])]
    tables = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    tables[1][:, 3] *= 100  # a channel on another scale
    tables[0][0] = 0  # a token without activations
    names = ["embeddings", "w1", "w2", "w3"]
    nodes = [
        helper.make_node("Gather", ["embeddings", "input_ids"], ["tokens"]),
        helper.make_node("MatMul", ["tokens", "w1"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w2"], ["left"]),
        helper.make_node("MatMul", ["hidden", "w3"], ["right"]),
        helper.make_node("Sub", ["left", "right"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "tokens", WIDTHS[2]])],
        [numpy_helper.from_array(table, name) for table, name in zip(tables, names, strict=True)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return tables


def literal(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """s · (q·Q) · c, token by token and channel by channel."""
    c = (np.maximum(np.abs(w).max(axis=0), 1e-12) / 64).astype(np.float32)
    weights = np.clip(np.round(w / c), -64, 64).astype(np.int64)
    out = np.empty((*x.shape[:2], w.shape[1]), dtype=np.float64)
    for i, j in np.ndindex(x.shape[:2]):
        s = np.float32(max(np.abs(x[i, j]).max(), np.float32(1e-12)) / np.float32(127))
        out[i, j] = s * (np.round(x[i, j] / s).astype(np.int64) @ weights) * c
    return out.astype(np.float32)


def test_int8_product_matches_reference(tmp_path: Path) -> None:
    embeddings, w1, w2, w3 = two_layers(tmp_path / "float32.onnx")
    assert quantize(tmp_path / "float32.onnx", tmp_path / "int8.onnx") == 3
    ids = np.random.default_rng(1).integers(0, 50, size=(4, 7))
    session = onnxruntime.InferenceSession(str(tmp_path / "int8.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": ids})
    hidden = literal(embeddings[ids], w1)
    expected = literal(hidden, w2) - literal(hidden, w3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())
    whole = embeddings[ids] @ w1 @ (w2 - w3)
    assert np.abs(found - whole).max() < 0.05 * np.abs(whole).max(), "and near the one in float32"


def test_int8_products_fit_16_bits(tmp_path: Path) -> None:
    """Processors without VNNI add them there and saturate: the largest activation is 255, of the least weights -64."""
    two_layers(tmp_path / "float32.onnx")
    quantize(tmp_path / "float32.onnx", tmp_path / "int8.onnx")
    weights = [numpy_helper.to_array(each) for each in onnx.load(tmp_path / "int8.onnx").graph.initializer]
    integers = [each.astype(int) for each in weights if each.dtype == np.int8]
    assert len(integers) == 3
    assert all(2 * 255 * np.abs(each).max() < 2**15 for each in integers)
    assert all(np.abs(each).max() == 64 for each in integers)


@pytest.fixture(scope="module")
def both() -> tuple[ExportedEncoder, ExportedEncoder]:
    """all-MiniLM-L6-v2 in float32 and in int8."""
    folder = exported_encoder(DEFAULT_ENCODER)
    return ExportedEncoder.load(folder), ExportedEncoder.load(cheaper_encoder(folder, "int8", TEXTS))


TEXTS = ["who pays for hidden defects", "a building permit", "roof", "", "is a fence a building that needs a permit?"]


@pytest.mark.model
def test_int8_vector_depends_on_text_alone(both: tuple[ExportedEncoder, ExportedEncoder]) -> None:
    """To the last bit: in company, alone, on one thread or two."""
    _, int8 = both
    batch = int8.encode(TEXTS * 9, "query")
    alone = np.vstack([int8.encode([text], "query") for text in TEXTS])
    assert batch[: len(TEXTS)].tobytes() == alone.tobytes()
    assert ExportedEncoder.load(int8.folder, threads=1).encode(TEXTS * 9, "query").tobytes() == batch.tobytes()


@pytest.mark.model
def test_int8_vectors_are_near_float32(both: tuple[ExportedEncoder, ExportedEncoder]) -> None:
    float32, int8 = both
    texts = [text for text in TEXTS if text]
    cosines = (float32.encode(texts, "query") * int8.encode(texts, "query")).sum(axis=1)
    assert 0.98 < cosines.min() < 0.99999
    assert (float32.config.precision, int8.config.precision) == ("float32", "int8")
    assert int8.sha256 != float32.sha256
    weights = int8.folder / (WEIGHTS if int8.config.runtime == "kernel" else MODEL)
    assert weights.stat().st_size < 0.7 * (float32.folder / MODEL).stat().st_size


@pytest.mark.model
def test_int8_encoder_is_cached(both: tuple[ExportedEncoder, ExportedEncoder]) -> None:
    float32, int8 = both
    assert cheaper_encoder(float32.folder, "int8", TEXTS) == int8.folder
    with pytest.raises(EncoderError, match="has int8 weights"):
        cheaper_encoder(int8.folder, "int8", TEXTS)


def calibrate(data: Path, releases: Path, *more: str) -> int:
    return cli.main(["calibrate", str(data), "--verbose", "--releases", str(releases), "--lexical", "off", *more])


@pytest.fixture(scope="module")
def accepted(brief: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in int8, with a margin of 10 points: 140 queries cannot show half a point."""
    releases = tmp_path_factory.mktemp("int8")
    assert calibrate(brief, releases, "--precision", "int8", "--projection", "query-pca", "--margin", "0.1") == 0
    return releases / current_id(releases)


@pytest.mark.model
def test_accepted_int8_is_served(brief: Path, accepted: Path, tmp_path: Path, capfd: Printed) -> None:
    manifest = json.loads((accepted / "manifest.json").read_bytes())
    int8, projection = manifest["gate"]
    assert (int8["kind"], int8["candidate"], int8["admitted"]) == ("precision", "int8", True)
    assert (int8["confidence"], projection["confidence"]) == (pytest.approx(0.975), pytest.approx(0.975))
    assert manifest["encoder"]["precision"] == "int8"
    assert projection["accuracy"]["baseline"] == int8["accuracy"]["baseline"]
    assert set(int8["gain"]) == {"queries_per_second", "baseline_queries_per_second"}
    release = load(accepted)
    texts = [json.loads(line)["text"] for line in (brief / "queries.jsonl").open(encoding="utf-8")]
    answers = release.retriever.search([Query(text, 5) for text in texts])
    order = np.random.default_rng(0).permutation(200)[:140]
    kept = np.mean([len(answers[row].positions) / 5 for row in order.tolist()])
    assert kept == pytest.approx(manifest["metrics"]["calibration"]["kept_fraction"])
    assert 1e-3 < manifest["golden_tolerance"] < 0.2, "what another processor may change, and no other encoder"
    _two_encoders(accepted, manifest)
    folder = str(accepted / "encoder")
    assert calibrate(brief, tmp_path / "again", "--encoder", folder) == 2
    assert f"{folder!r}: has int8 weights" in capfd.readouterr().err


@pytest.mark.skipif(bert.processor_path("int8") is None, reason="needs a compiler at installation, and AVX2")
@pytest.mark.model
def test_release_of_kernel_is_served_in_float32_without_it(
    brief: Path, accepted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert json.loads((accepted / "manifest.json").read_bytes())["encoder"]["runtime"] == "kernel"
    monkeypatch.setattr(bert, "kernel", lambda: None)
    caplog.clear()
    release = load(accepted)
    assert release.precision == "float32"
    assert release.retriever.search([Query("a permit", 5)])[0].best_score is not None
    (line,) = caplog.messages
    assert "int8 needs a processor with AVX2" in line and line.endswith("; encoding queries with encoder-float32")
    with pytest.raises(EncoderError, match="int8 needs a processor with AVX2"):
        load(accepted, precision="int8")
    few = write_part(brief, tmp_path / "few", 50)
    assert calibrate(few, tmp_path / "graph", "--precision", "int8", "--margin", "0.1") == 0
    manifest = json.loads((tmp_path / "graph" / current_id(tmp_path / "graph") / "manifest.json").read_bytes())
    assert manifest["encoder"]["runtime"] == "onnxruntime"
    assert load(tmp_path / "graph" / current_id(tmp_path / "graph")).precision == manifest["encoder"]["precision"]
    monkeypatch.undo()
    copy = shutil.copytree(accepted, tmp_path / accepted.name)
    forged = forge(copy, lambda release, raw: raw["encoder"].update(sha256="0" * 64))
    with pytest.raises(ReleaseError, match="are not the encoder in the manifest"):
        load(forged)  # float32 is for what a machine cannot run, not for what the manifest does not name


def _two_encoders(release: Path, manifest: dict) -> None:
    """The float32 one answers where it is asked for, or where int8 does not answer as recorded."""
    assert manifest["float32_encoder"]["precision"] == "float32"
    loaded = {asked: load(release, precision=asked) for asked in ("auto", "int8", "float32")}
    assert {asked: each.precision for asked, each in loaded.items()} == {
        "auto": "int8",
        "int8": "int8",
        "float32": "float32",
    }
    scores = {asked: each.retriever.search([Query("a permit", 5)])[0].best_score for asked, each in loaded.items()}
    assert scores["auto"] == scores["int8"] != scores["float32"]
    assert scores["float32"] == pytest.approx(scores["int8"], abs=manifest["golden_tolerance"])

    def elsewhere(retriever: Retriever, queries: list[GoldenQuery], tolerance: float) -> None:
        if retriever.encoder.config.precision == "int8":  # type: ignore[attr-defined]  # an ExportedEncoder here
            raise ReleaseError("golden query 0 scores otherwise")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(golden, "check", elsewhere)
        assert load(release).precision == "float32"
        with pytest.raises(ReleaseError, match="golden query 0"):
            load(release, precision="int8")


@pytest.mark.model
def test_rejected_int8_keeps_float32(brief: Path, tmp_path: Path) -> None:
    digests, few = set(), write_part(brief, tmp_path / "few", 50)
    for _ in range(2):
        assert calibrate(few, tmp_path, "--precision", "int8", "--margin", "0.0001") == 0
        manifest = json.loads((tmp_path / current_id(tmp_path) / "manifest.json").read_bytes())
        assert [record["admitted"] for record in manifest["gate"]] == [False]
        assert manifest["encoder"]["precision"] == "float32"
        digests.add(manifest["release_id"].rsplit("-", 1)[1])
    assert len(digests) == 1


def test_encoder_without_layers_has_no_int8(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    assert calibrate(sample, tmp_path / "r", "--encoder", str(encoder), "--precision", "int8") == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("taugate: ")]
    assert "nothing to quantise to int8; leave out --precision" in line
    assert not (tmp_path / "r").exists()
