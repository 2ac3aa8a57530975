"""Exported cross-encoders of several architectures have the scores of sentence-transformers; others are refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.rerankers import exported_reranker
from taugate.calibration.encoding.source import DEFAULT_ENCODER, model_folder
from taugate.errors import EncoderError
from taugate.retrieval.rerank.cross_encoder import CrossEncoder

pytestmark = pytest.mark.model

QUERY = "who pays for a new roof"
TEXTS = ["the owner pays", "roof", "a permit is needed, " * 60, "¿quién paga el tejado?", "x"]
SMALL = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96}


def cross_encoder(folder: Path, architecture: str, labels: int = 1, **options: Any) -> Path:
    """Write a cross-encoder with random weights and the tokenizer of the default encoder."""
    import torch
    import transformers
    from sentence_transformers import CrossEncoder as TorchCrossEncoder

    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(DEFAULT_ENCODER))
    tokenizer.model_max_length = 64
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=len(tokenizer), num_labels=labels, initializer_range=0.3, **options
    )
    getattr(transformers, f"{architecture}ForSequenceClassification")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = TorchCrossEncoder(str(folder), device="cpu")
    saved = folder.parent / f"{folder.name}-saved"
    model.save_pretrained(str(saved))
    return saved


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("Bert", SMALL),
        ("Electra", {**SMALL, "embedding_size": 48}),
        ("DistilBert", {"n_layers": 2, "dim": 48, "n_heads": 4, "hidden_dim": 96}),  # has no token types
    ],
)
def test_scores_after_export_equal_those_of_the_library(
    tmp_path: Path, architecture: str, options: dict[str, Any]
) -> None:
    from sentence_transformers import CrossEncoder as TorchCrossEncoder

    folder = cross_encoder(tmp_path / "model", architecture, **options)
    exported = CrossEncoder(exported_reranker(str(folder)), 1)
    expected = TorchCrossEncoder(str(folder), device="cpu").predict([[QUERY, text] for text in TEXTS])
    np.testing.assert_allclose(exported.score(QUERY, TEXTS), expected, atol=1e-4)
    assert exported.config.max_difference <= 1e-4
    assert exported_reranker(str(exported.folder)) == exported.folder


def test_model_with_two_labels_is_refused(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model", "Bert", labels=2, **SMALL)
    with pytest.raises(EncoderError, match="2 labels"):
        exported_reranker(str(folder))


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="--rerank"):
        exported_reranker(str(tmp_path))
    broken = tmp_path / "broken"
    shutil.copytree(model_folder(DEFAULT_ENCODER), broken)
    (broken / "config.json").write_text("{}")
    with pytest.raises(EncoderError, match="not a cross-encoder"):
        exported_reranker(str(broken))
