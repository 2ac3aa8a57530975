"""Every architecture of docs/how-to/choose-an-encoder.md is exported and equal to PyTorch, or refused by name."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.export import weights
from taugate.calibration.export.model_folder import PROBES
from taugate.calibration.export.weights import quantize
from taugate.errors import EncoderError
from taugate.release.encoder import MODEL
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import Printed
from tests.calibration.export.architectures import EXPORTED, LAST_TOKEN, MAX_TOKENS, REFUSED, model_folder

pytestmark = pytest.mark.model

# Architectures of the most used models, and one for each case that the export treats differently.
QUICK = {
    "ConvBERT",
    "ModernBERT (gte-modernbert)",
    "Gemma 3, bidirectional (EmbeddingGemma)",
    "Qwen 3 (Qwen3-Embedding)",
}
# Built of the layers of another one in the list: they differ in names, projections, biases, factors or norms.
ALIKE = {
    "CamemBERT",
    "Data2Vec",
    "ELECTRA",
    "ERNIE",
    "Gemma",
    "Gemma 2",
    "Granite",
    "Llama",
    "LUKE",
    "Megatron",
    "ModernBERT decoder",
    "mT5",
    "OLMo 2",
    "Phi",
    "Phi 3",
    "Qwen 2",
    "RemBERT",
    "RoBERTa-PreLayerNorm",
    "SmolLM 3",
    "StableLM",
    "StarCoder 2",
    "UMT5",
}
# Of the most used ones for long texts; the others compute attention as one of these or as one of the quick ones does.
LONG_WINDOW = {
    "BERT (bge, gte, MiniLM)",
    "DeBERTa 2 and 3",
    "EuroBERT",
    "GTE",
    "Jina 3",
    "Mistral (e5-mistral)",
    "Nomic",
    "T5 (gtr, sentence-t5)",
    "XLM-RoBERTa (multilingual-e5, bge-m3, arctic-embed 2)",
}
PAGE = Path(__file__).parents[3] / "docs/how-to/choose-an-encoder.md"


def check_equal(path: Path) -> ExportedEncoder:
    from sentence_transformers import SentenceTransformer

    encoder = ExportedEncoder.load(exported_encoder(str(path)))
    model = SentenceTransformer(str(path), device="cpu").float()
    expected = model.encode(PROBES, normalize_embeddings=True, batch_size=1)
    np.testing.assert_allclose(encoder.encode(PROBES, "query"), expected, atol=1e-6)
    assert np.std(expected @ expected.T) > 0.001  # the texts differ
    return encoder


def cost(name: str) -> pytest.MarkDecorator:
    return pytest.mark.exhaustive if name in ALIKE else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else cost(name)) for name in EXPORTED])
def test_architecture_exported_equals_pytorch(name: str, tmp_path: Path) -> None:
    path = model_folder(tmp_path, *EXPORTED[name], pooling="lasttoken" if name in LAST_TOKEN else "mean")
    assert check_equal(path).config.max_length == MAX_TOKENS


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG_WINDOW else pytest.mark.exhaustive)
        for name in EXPORTED
        if name not in QUICK
    ]
    + sorted(QUICK),
)
def test_architecture_with_a_long_window_equals_pytorch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose attention is computed in blocks, here of 16 queries instead of 256."""
    monkeypatch.setattr(weights, "LONG_TEXT", MAX_TOKENS - 1)
    monkeypatch.setattr(weights, "QUERY_BLOCK", 16)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    check_equal(model_folder(tmp_path, *EXPORTED[name], pooling="lasttoken" if name in LAST_TOKEN else "mean"))


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_architecture_not_exportable_is_named(name: str, tmp_path: Path, capfd: Printed) -> None:
    config_class, parameters, reason = REFUSED[name]
    folder = model_folder(tmp_path, config_class, parameters)
    capfd.readouterr()
    with pytest.raises(EncoderError) as error:
        exported_encoder(str(folder))
    assert reason in str(error.value)
    out, err = capfd.readouterr()  # of the tracer and onnxruntime, too, which do not print through Python
    assert out == ""
    assert "onnxruntime" not in err


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_folder_is_exported_in_float32(dtype: str, tmp_path: Path) -> None:
    encoder = check_equal(model_folder(tmp_path, *EXPORTED["Qwen 3 (Qwen3-Embedding)"], dtype=dtype))
    assert encoder.config.stored_type == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    assert encoder.config.precision == "float32"


@pytest.mark.parametrize(("name", "dense"), [("ALBERT", 0), ("DeBERTa 2 and 3", 0), ("XLNet", 0), ("mT5", 16)])
def test_int8_of_shared_weights_and_other_shapes_is_near_float32(name: str, dense: int, tmp_path: Path) -> None:
    exported = exported_encoder(str(model_folder(tmp_path, *EXPORTED[name], dense=dense)))
    target = Path(shutil.copytree(exported, tmp_path / "int8"))
    assert quantize(exported / MODEL, target / MODEL)
    float32, int8 = (ExportedEncoder.load(folder).encode(PROBES, "query") for folder in (exported, target))
    assert (float32 * int8).sum(axis=1).min() > 0.95  # random weights have more outliers than trained ones


def test_page_lists_every_tested_architecture() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*EXPORTED, *REFUSED) if name not in text] == []
