"""A base that cannot be trained, a graph alone: it is adapted in its graph, and served as any other encoder."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from taugate.calibration.encoding.source import cheaper_encoder
from taugate.cli import main as cli
from taugate.errors import EncoderError
from taugate.release.encoder import CONFIG, MODEL, TOKENIZER
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.reader import load
from taugate_adapt.folder import fold_linear_map
from tests.calibration.commands import refusal
from tests.fake_encoder import DIMENSION
from tests.object_storage import object_storage

pytestmark = pytest.mark.model
TEXTS = ["What does a new roof cost?", "a contract for the foundation", "roof", "?"]
RNG = np.random.default_rng(0)


def random_map(dimension: int = DIMENSION) -> tuple[np.ndarray, np.ndarray]:
    weight = RNG.standard_normal((dimension, dimension)) / dimension**0.5
    return weight.astype(np.float32), (RNG.standard_normal(dimension) / dimension).astype(np.float32)


def with_product(graph: Path, target: Path) -> None:
    """The same similarities by a graph that has a product to quantise: every word's direction is turned."""
    model = onnx.load(graph)
    turned = np.linalg.qr(np.random.default_rng(1).standard_normal((DIMENSION, DIMENSION)))[0].astype(np.float32)
    gather, *remaining = model.graph.node
    assert gather.op_type == "Gather"
    gather.output[0] = "straight"
    product = helper.make_node("MatMul", ["straight", "turn"], ["words"])
    del model.graph.node[:]
    model.graph.node.extend([gather, product, *remaining])
    model.graph.initializer.append(numpy_helper.from_array(turned, "turn"))
    onnx.save(model, target)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """The encoder that knows the sample's words, whose meaning eight strong dimensions drown."""
    folder = tmp_path_factory.mktemp("models") / "spoilt"
    folder.mkdir()
    for name in (TOKENIZER, CONFIG):
        shutil.copyfile(encoder / name, folder / name)
    scales = np.where(np.arange(DIMENSION) < 8, 12, 1).astype(np.float32)
    with_product(encoder / MODEL, folder / "turned.onnx")
    fold_linear_map(folder / "turned.onnx", np.diag(scales), 0.02 * scales, folder / MODEL)
    (folder / "turned.onnx").unlink()
    return folder


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, sample: Path, spoilt: Path) -> Path:
    target = tmp_path_factory.mktemp("adapted") / "encoder"
    assert cli.main(["adapt", str(sample), "--encoder", str(spoilt), "--to", str(target), "--split", "test"]) == 0
    return target


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, spoilt: Path, adapted: Path) -> Iterator[Path]:
    """One release with the base, and one with the adapted encoder in int8."""
    folder = tmp_path_factory.mktemp("releases")
    for base, extra in ((spoilt, ()), (adapted, ("--precision", "int8", "--margin", "0.05", "--force"))):
        assert cli.main(["calibrate", str(sample), "--releases", str(folder), "--encoder", str(base), *extra]) == 0
    return folder


@pytest.mark.parametrize("recipe", ["layers", "ft", "pt", "pt-ft", "merge"])
def test_exported_graph_cannot_be_trained(
    recipe: str, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("accelerate")
    command = ["adapt", str(sample), "--encoder", str(spoilt), "--to", str(tmp_path / "encoder"), "--split", "test"]
    message = refusal([*command, "--recipe", recipe], tmp_path / "encoder", capfd)
    assert "is an exported graph, whose weights cannot be trained; use the sentence-transformers folder" in message
    assert list(tmp_path.iterdir()) == []


def test_folded_graph_applies_map(encoder: Path, tmp_path: Path) -> None:
    weight, bias = random_map()
    for name in (TOKENIZER, CONFIG):
        shutil.copyfile(encoder / name, tmp_path / name)
    fold_linear_map(encoder / MODEL, weight, bias, tmp_path / "once.onnx")
    fold_linear_map(tmp_path / "once.onnx", weight, bias, tmp_path / MODEL)
    expected = ExportedEncoder.load(encoder).encode(TEXTS, "query")
    for _ in range(2):
        expected = expected @ weight.T + bias
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(ExportedEncoder.load(tmp_path).encode(TEXTS, "query"), expected, atol=1e-6)


def test_external_weights_are_refused(encoder: Path, tmp_path: Path) -> None:
    model = onnx.load(encoder / MODEL)
    onnx.save(model, tmp_path / MODEL, save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(EncoderError, match="has its weights in weights; move them all to model.onnx_data"):
        fold_linear_map(tmp_path / MODEL, *random_map(), tmp_path / "target.onnx")
    assert not (tmp_path / "target.onnx").exists()


def test_adapted_graph_has_record(adapted: Path, spoilt: Path) -> None:
    assert {path.name for path in adapted.iterdir()} == {MODEL, TOKENIZER, CONFIG, "adaptation.json"}
    record = json.loads((adapted / "adaptation.json").read_text())
    assert record["admitted"] is True
    assert record["gain"]["ndcg"]["lower"] > 0
    base, after = ExportedEncoder.load(spoilt), ExportedEncoder.load(adapted)
    assert after.config.name == f"{base.config.name}+{record['recipe']}"
    assert after.config.revision != base.config.revision == record["base_sha256"]
    alone = np.concatenate([after.encode([text], "query") for text in TEXTS])
    np.testing.assert_array_equal(after.encode(TEXTS * 2, "query")[: len(TEXTS)], alone)


@pytest.mark.slow
def test_int8_release_is_gated_again(releases: Path, adapted: Path) -> None:
    before, after = sorted(releases.glob("*-*"))
    manifest = json.loads((after / "manifest.json").read_text())
    assert manifest["adaptation"] == json.loads((adapted / "adaptation.json").read_text())
    assert manifest["encoder"]["precision"] == "int8"
    (int8,) = [item for item in manifest["gate"] if item["candidate"] == "int8"]
    assert int8["admitted"] is True
    float32 = ExportedEncoder.load(after / "encoder-float32")
    assert float32.sha256 == ExportedEncoder.load(adapted).sha256
    assert ExportedEncoder.load(after / "encoder").config.revision == float32.config.revision
    references = [(folder / manifest["reference"]).read_bytes() for folder in (before, after)]
    assert references[0] != references[1]
    load(after)  # compares the golden queries


def test_int8_base_is_refused(adapted: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "encoder"
    command = ["adapt", str(sample), "--encoder", str(cheaper_encoder(adapted, "int8", TEXTS)), "--to", str(target)]
    message = refusal(command, target, capfd)
    assert message.endswith(
        "has int8 weights, which encode only queries; use the float32 encoder from which it was quantised"
    )


def test_object_storage_gives_same_bytes(
    adapted: Path, sample: Path, spoilt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "encoder"
    with object_storage() as (bucket, _):
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
            bucket.put(f"zaragoza/{name}", (sample / name).read_bytes())
        data = f"{bucket.url}/zaragoza"
        assert cli.main(["adapt", data, "--encoder", str(spoilt), "--to", str(target), "--split", "test"]) == 0
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in adapted.iterdir()
    }
