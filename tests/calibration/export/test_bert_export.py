"""BERT-like encoders are exported from their weights: without PyTorch, and with its vectors."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder, model_folder, source_digest
from taugate.calibration.export import encoders, weights
from taugate.calibration.export.bert import BertFolder, NeedsPyTorchError
from taugate.calibration.export.encoders import GOLDEN, GOLDEN_PROBES, GOLDEN_REVISION
from taugate.calibration.export.model_folder import PROBES, ModelFolder
from taugate.errors import EncoderError
from taugate.release.encoder import MODEL
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.export import architectures
from tests.calibration.export.architectures import EXPORTED

pytestmark = pytest.mark.model

KINDS = {
    "bert": "BERT (bge, gte, MiniLM)",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-RoBERTa (multilingual-e5, bge-m3, arctic-embed 2)",
    "mpnet": "MPNet",
}


def saved(kind: str, folder: Path, **options: Any) -> Path:
    return architectures.model_folder(folder, *EXPORTED[KINDS[kind]], **options)


def check_equal(folder: Path) -> ExportedEncoder:
    """Export a folder by its weights, and compare the vectors with PyTorch's in float32."""
    from sentence_transformers import SentenceTransformer

    assert BertFolder.read(ModelFolder.read(folder, "model"), "model")
    encoder = ExportedEncoder.load(exported_encoder(str(folder)))
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"}).float()
    expected = model.encode(PROBES, normalize_embeddings=True, batch_size=1)
    np.testing.assert_allclose(encoder.encode(PROBES, "document"), expected, atol=1e-6)
    assert np.std(expected @ expected.T) > 0.001  # the texts differ
    return encoder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_random_folder_exported_equals_pytorch(kind: str, dtype: str, tmp_path: Path) -> None:
    pooling = "cls" if dtype == "float16" else "mean"
    encoder = check_equal(saved(kind, tmp_path, dtype=dtype, pooling=pooling, dense=24 if dtype == "bfloat16" else 0))
    assert encoder.config.stored_type == {"float16": "F16", "bfloat16": "BF16"}.get(dtype)
    assert (encoder.config.pooling, encoder.config.max_cosine_difference) == (pooling, None)


@pytest.mark.parametrize("kind", KINDS)
def test_long_window_in_blocks_equals_pytorch(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LONG_TEXT", 64)
    monkeypatch.setattr(weights, "QUERY_BLOCK", 16)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    encoder = check_equal(saved(kind, tmp_path))
    operators = {node.op_type for node in onnx.load(encoder.folder / MODEL).graph.node}
    assert ("Loop" in operators) == (kind != "mpnet")


def test_first_bert_names_of_weights_are_read(tmp_path: Path) -> None:
    folder = saved("bert", tmp_path)
    path = folder / "model.safetensors"
    stored = {f"bert.{name}": array for name, array in load_file(path).items()}
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in stored.items()
    }
    save_file(renamed | {"cls.predictions.bias": np.zeros(320, np.float32)}, path, {"format": "pt"})
    check_equal(folder)


def test_tokenizer_options_of_transformers_are_applied(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model_folder(DEFAULT_ENCODER), tmp_path / "cased"))
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"do_lower_case": False}))
    tokenizer = BertFolder.read(ModelFolder.read(folder, "model"), "model").tokenizer()
    assert tokenizer.encode("Roof").ids != tokenizer.encode("roof").ids


# Runs a command of `taugate`, and fails if PyTorch was imported on the way.
_WITHOUT_PYTORCH = """
import sys
from taugate.cli.main import main
code = main(sys.argv[1:])
found = {"torch", "transformers", "sentence_transformers"} & sys.modules.keys()
sys.exit(f"imported {found}" if found else code)
"""


def test_calibration_with_default_encoder_imports_no_pytorch(sample: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(sample, tmp_path / "data"))
    lines = (data / "corpus.jsonl").read_text().splitlines()[:40]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    kept = {json.loads(line)["_id"] for line in lines}
    header, *rows = (data / "qrels" / "test.tsv").read_text().splitlines()
    rows = [row for row in rows if row.split("\t")[1] in kept]
    (data / "qrels" / "test.tsv").write_text("\n".join([header, *rows]) + "\n")
    command = ["calibrate", str(data), "--releases", str(tmp_path / "releases"), "--lexical", "off", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYTORCH, *command],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TAUGATE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 4}, done.stderr
    assert json.loads(done.stdout)["manifest"]["encoder"]["max_cosine_difference"] < 1e-11


def test_golden_vectors_are_those_of_pytorch() -> None:
    from sentence_transformers import SentenceTransformer

    folder = model_folder(DEFAULT_ENCODER)
    assert source_digest(folder) == GOLDEN_REVISION
    model = SentenceTransformer(str(folder), device="cpu")
    vectors = model.encode(GOLDEN_PROBES, normalize_embeddings=True, batch_size=1)
    np.testing.assert_allclose(np.load(GOLDEN), vectors, atol=1e-6)


def test_export_unlike_golden_vectors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "GOLDEN", tmp_path / "golden.npy")
    np.save(tmp_path / "golden.npy", np.load(GOLDEN)[::-1])
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EncoderError, match="the exported graph and PyTorch differ by 1 − cosine = 1"):
        exported_encoder(DEFAULT_ENCODER)
    assert not [*(tmp_path / "cache" / "encoders").glob("[0-9a-f]*")]


@pytest.fixture
def no_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make torch and its libraries look as if they were not installed."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in {"torch", "transformers", "sentence-transformers"}:
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(encoders, "version", version)
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))


def test_digest_is_same_without_pytorch(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = saved("bert", tmp_path)
    with_pytorch = ExportedEncoder.load(exported_encoder(str(folder))).sha256
    request.getfixturevalue("no_pytorch")
    assert ExportedEncoder.load(exported_encoder(str(folder))).sha256 == with_pytorch


@pytest.mark.parametrize(
    ("file", "changed", "reason"),
    [
        ("config.json", {"model_type": "qwen3"}, "its architecture is qwen3, not bert, roberta, xlm-roberta, mpnet"),
        ("config.json", {"hidden_act": "relu"}, "its hidden_act is relu"),
        ("config_sentence_transformers.json", {"truncate_dim": 16}, "its truncate_dim is 16"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "it pools tokens neither by their mean nor by the first"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "it pools tokens neither by their mean"),
        ("tokenizer.json", None, "it has no tokenizer.json"),
        ("model.safetensors", None, "its weights are not in safetensors files"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.usefixtures("no_pytorch")
def test_folder_that_needs_pytorch_is_named(
    file: str, changed: dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    folder = saved("bert", tmp_path)
    if changed is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_bytes()) | changed))
    with pytest.raises(NeedsPyTorchError):
        BertFolder.read(ModelFolder.read(folder, "model"), "model")
    with pytest.raises(EncoderError) as error:
        exported_encoder(str(folder))
    assert str(error.value).startswith(f"encoder 'model': {reason}")
    assert "torch is not installed; run pip install '.[torch]'" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("no_pytorch")
def test_missing_weight_is_named(tmp_path: Path) -> None:
    folder = saved("bert", tmp_path)
    path = folder / "model.safetensors"
    save_file({name: array for name, array in load_file(path).items() if "layer.1.output.dense" not in name}, path)
    with pytest.raises(EncoderError, match=r"has no weights .*layer\.1\.output\.dense"):
        exported_encoder(str(folder))
