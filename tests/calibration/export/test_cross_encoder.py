"""Exported cross-encoders of several architectures have the scores of sentence-transformers; others are refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.rerankers import cheaper_reranker, exported_reranker
from taugate.calibration.encoding.source import DEFAULT_ENCODER, CheaperPrecision, model_folder
from taugate.calibration.job import reranking
from taugate.cli import main as cli
from taugate.errors import EncoderError
from taugate.registry.catalog import release_ids
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.rerank.cross_encoder import CrossEncoder, PairBert

pytestmark = pytest.mark.model

QUERY = "who pays for a new roof"
TEXTS = ["the owner pays", "roof", "a permit is needed, " * 60, "¿quién paga el tejado?", "x"]
# Sizes that the kernel has: multiples of 64, and of 16 per head.
FOR_KERNEL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
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
    network = getattr(transformers, f"{architecture}ForSequenceClassification")(config)
    for parameter in network.parameters():  # offsets that are all zero would be one constant of the graph
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    network.save_pretrained(folder)
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


@pytest.mark.skipif(processor_path("int8") is None, reason="needs AVX2 and a compiler")
@pytest.mark.parametrize(("architecture", "precision"), [("Bert", "int8"), ("Roberta", "bfloat16")])
def test_scores_by_the_kernel_are_near_those_in_float32(
    tmp_path: Path, architecture: str, precision: CheaperPrecision
) -> None:
    """Random weights magnify rounding, but another position, token type or head gives unrelated outputs."""
    positions = {"max_position_embeddings": 128, "pad_token_id": 1, "type_vocab_size": 2}
    folder = cross_encoder(tmp_path / "model", architecture, **FOR_KERNEL, **positions)
    float32 = CrossEncoder(exported_reranker(str(folder)), 1)
    cheaper = cheaper_reranker(float32, precision, TEXTS)
    assert isinstance(cheaper._model, PairBert)
    assert cheaper_reranker(float32, precision, TEXTS).sha256 == cheaper.sha256 != float32.sha256
    expected, outputs = (model.outputs(model.tokenize(QUERY, TEXTS)) for model in (float32, cheaper))
    assert (outputs != expected).all()
    assert np.corrcoef(outputs, expected)[0, 1] > 0.95
    alone = [cheaper.score(QUERY, [text])[0] for text in TEXTS]
    np.testing.assert_allclose(cheaper.score(QUERY, TEXTS), alone, atol=1e-6)


def test_model_that_is_not_bert_like_has_no_cheaper_precision(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model", "Electra", **FOR_KERNEL, embedding_size=64)
    with pytest.raises(EncoderError, match="int8 needs"):
        cheaper_reranker(CrossEncoder(exported_reranker(str(folder)), 1), "int8", TEXTS)


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


@pytest.mark.skipif(processor_path("int8") is None, reason="needs AVX2 and a compiler")
def test_calibration_serves_a_cross_encoder_in_int8_if_its_results_are_as_good(
    tmp_path: Path, sample: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranking, "FASTER", 0.0)  # whatever else the machine does
    folder, releases = cross_encoder(tmp_path / "model", "Bert", **FOR_KERNEL), tmp_path / "releases"
    options = ("--rerank", str(folder), "--rerank-candidates", "5", "--precision", "auto", "--lexical", "off")
    options += ("--encoder", str(encoder), "--no-promote")
    assert cli.main(["calibrate", str(sample), "--releases", str(releases), *options]) in {0, 4}
    (name,) = release_ids(releases)
    release = load(releases / name)
    record, judged = release.manifest.second_stage, release.manifest.gate[-1]
    assert record is not None
    assert judged.candidate == "second stage model-saved, 5 candidates, int8"
    assert judged.gain["tokens_per_pair"] <= 64
    assert (record.precision == "int8") == judged.admitted == ("reranker/weights.safetensors" in release.manifest.files)
    (answer,) = release.retriever.search([Query("who pays for a permit", 5)])
    assert answer.stage == "second"
    release.close()
