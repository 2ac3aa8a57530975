"""Cross-encoders and token encoders are exported with the scores of their library."""

import json
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.rerankers import cheaper_reranker, exported_reranker
from taugate.calibration.encoding.source import DEFAULT_ENCODER, CheaperPrecision, exported_encoder, model_folder
from taugate.calibration.job import reranking
from taugate.cli import main as cli
from taugate.errors import EncoderError
from taugate.registry.catalog import release_ids
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.rerank.cross_encoder import CrossEncoder, PairBert
from taugate.retrieval.rerank.late_interaction import TokenEncoder

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


QUERIES = ["who pays for a new roof", "roof", "what, exactly, is a permit? " * 9]
SENTENCES = ["the owner pays.", "roof", "a permit is needed, " * 60, "¿quién paga el tejado?", "x"]
HIDDEN, DIMENSION = 64, 16  # the kernel has sizes in multiples of 64
CONFIG = {"num_hidden_layers": 2, "hidden_size": HIDDEN, "num_attention_heads": 4, "intermediate_size": 128}


def bert(folder: Path) -> Path:
    """Write a BERT with random weights and the tokenizer of the default encoder."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder(DEFAULT_ENCODER))
    tokenizer.model_max_length = 64
    config = transformers.BertConfig(vocab_size=len(tokenizer), initializer_range=0.3, **CONFIG)
    network = transformers.BertModel(config)
    for parameter in network.parameters():  # offsets that are all zero would be one constant of the graph
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def projection() -> dict[str, Any]:
    import torch

    return {"linear.weight": torch.randn(DIMENSION, HIDDEN, generator=torch.Generator().manual_seed(1)) / 4}


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def colbert(folder: Path) -> Path:
    """Write the layout of ColBERTv2: the projection beside the weights of BERT, settings in artifact.metadata."""
    from safetensors.torch import load_file, save_file

    bert(folder)
    weights = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights | projection(), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(
        folder / "config.json", json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    )
    write_json(
        folder / "artifact.metadata",
        {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 32, "doc_maxlen": 40},
    )
    return folder


def pylate(folder: Path) -> Path:
    """Write the layout of PyLate: a Dense module of its own, settings in config_sentence_transformers.json."""
    from safetensors.torch import save_file

    bert(folder)
    dense = {"in_features": HIDDEN, "out_features": DIMENSION, "bias": False, "use_residual": False}
    write_json(folder / "1_Dense" / "config.json", dense | {"activation_function": "torch.nn.modules.linear.Identity"})
    save_file(projection(), folder / "1_Dense" / "model.safetensors")
    kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": kind}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", modules)
    settings = {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 24, "document_length": 50}
    expansion = {"attend_to_expansion_tokens": True, "do_query_expansion": True}
    write_json(
        folder / "config_sentence_transformers.json",
        {"model_type": "ColBERT", "skiplist_words": list(string.punctuation), **settings, **expansion},
    )
    return folder


def multi_vector(folder: Path) -> Path:
    """Write the layout of sentence-transformers, without expansion."""
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(bert(folder / "bert")), device="cpu", prompts={"query": "q: ", "document": ""})
    model.save_pretrained(str(folder / "saved"))
    return folder / "saved"


def encoder(folder: Path) -> Path:
    """Write an encoder of sentence-transformers, which pools the vectors of tokens."""
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(bert(folder / "bert")), device="cpu").save_pretrained(str(folder / "encoder"))
    return folder / "encoder"


@pytest.mark.parametrize("layout", [colbert, pylate, multi_vector])
def test_late_scores_after_export_equal_those_of_the_library(layout: Callable[[Path], Path], tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    folder = layout(tmp_path / "model")
    exported = TokenEncoder(exported_reranker(str(folder)), 1)
    library = MultiVectorEncoder(str(folder), device="cpu")
    expected = library.similarity(library.encode_query(QUERIES), library.encode_document(SENTENCES))
    queries, documents = exported.encode(QUERIES, "query"), exported.encode(SENTENCES, "document")
    scores = [[(text.vectors @ query.vectors.T).max(axis=0).sum() for text in documents] for query in queries]
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert len(np.unique(np.argmax(scores, axis=1))) > 1 or np.ptp(scores) > 0.1
    assert exported.config.max_difference <= 1e-4


@pytest.mark.skipif(processor_path("int8") is None, reason="needs AVX2 and a compiler")
@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_token_vectors_by_the_kernel_are_near_those_in_float32(precision: CheaperPrecision, tmp_path: Path) -> None:
    """Another head or position gives unrelated vectors."""
    float32 = TokenEncoder(exported_reranker(str(encoder(tmp_path)), of_encoder=True), 1)
    cheaper = cheaper_reranker(float32, precision, SENTENCES)
    assert isinstance(cheaper, TokenEncoder)
    assert cheaper.sha256 != float32.sha256
    for role, texts in (("query", QUERIES), ("document", SENTENCES)):
        for own, exact in zip(cheaper.encode(texts, role), float32.encode(texts, role), strict=True):
            assert own.ids.tolist() == exact.ids.tolist()
            cosines = (own.vectors * exact.vectors).sum(axis=1)
            assert 0.95 < cosines.min() < 1 - 1e-7
    for text, together in zip(SENTENCES, cheaper.encode(SENTENCES, "document"), strict=True):
        np.testing.assert_array_equal(cheaper.encode([text], "document")[0].vectors, together.vectors)


@pytest.mark.parametrize("layout", [colbert, pylate])
def test_model_with_a_mask_or_a_projection_has_no_cheaper_precision(
    layout: Callable[[Path], Path], tmp_path: Path
) -> None:
    float32 = TokenEncoder(exported_reranker(str(layout(tmp_path / "model"))), 1)
    with pytest.raises(EncoderError, match=r"int8 needs|AVX2"):
        cheaper_reranker(float32, "int8", SENTENCES)


def test_model_that_pools_tokens_is_refused(tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    model = MultiVectorEncoder(str(bert(tmp_path / "bert")), device="cpu")
    model.append(HierarchicalTokenPooling(pool_factor=2))
    model.save_pretrained(str(tmp_path / "pooled"))
    with pytest.raises(EncoderError, match="HierarchicalTokenPooling"):
        exported_reranker(str(tmp_path / "pooled"))


def test_token_vectors_of_an_encoder_are_those_before_pooling(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = exported_reranker(str(encoder(tmp_path)), of_encoder=True)
    exported = TokenEncoder(folder, 1)
    assert exported.config.weighted
    library = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    expected = library.encode(QUERIES[0], output_value="token_embeddings").numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(exported.encode(QUERIES, "query")[0].vectors, expected, atol=1e-5)
    with pytest.raises(EncoderError, match="exported encoder"):
        exported_reranker(str(exported_encoder(str(tmp_path / "encoder"))), of_encoder=True)
