"""Exported models of late interaction have the scores of sentence-transformers in all published layouts.

The layouts are those of ColBERT, PyLate and MultiVectorEncoder. PyLate itself needs an older sentence-transformers.
"""

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.rerankers import cheaper_reranker, exported_reranker
from taugate.calibration.encoding.source import DEFAULT_ENCODER, CheaperPrecision, exported_encoder, model_folder
from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.rerank.late_interaction import TokenEncoder

pytestmark = pytest.mark.model

QUERIES = ["who pays for a new roof", "roof", "what, exactly, is a permit? " * 9]
TEXTS = ["the owner pays.", "roof", "a permit is needed, " * 60, "¿quién paga el tejado?", "x"]
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
def test_scores_after_export_equal_those_of_the_library(layout: Callable[[Path], Path], tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    folder = layout(tmp_path / "model")
    exported = TokenEncoder(exported_reranker(str(folder)), 1)
    library = MultiVectorEncoder(str(folder), device="cpu")
    expected = library.similarity(library.encode_query(QUERIES), library.encode_document(TEXTS))
    queries, documents = exported.encode(QUERIES, "query"), exported.encode(TEXTS, "document")
    scores = [[(text.vectors @ query.vectors.T).max(axis=0).sum() for text in documents] for query in queries]
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert len(np.unique(np.argmax(scores, axis=1))) > 1 or np.ptp(scores) > 0.1
    assert exported.config.max_difference <= 1e-4


@pytest.mark.skipif(processor_path("int8") is None, reason="needs AVX2 and a compiler")
@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_token_vectors_by_the_kernel_are_near_those_in_float32(precision: CheaperPrecision, tmp_path: Path) -> None:
    """Another head or position gives unrelated vectors."""
    float32 = TokenEncoder(exported_reranker(str(encoder(tmp_path)), of_encoder=True), 1)
    cheaper = cheaper_reranker(float32, precision, TEXTS)
    assert isinstance(cheaper, TokenEncoder)
    assert cheaper.sha256 != float32.sha256
    for role, texts in (("query", QUERIES), ("document", TEXTS)):
        for own, exact in zip(cheaper.encode(texts, role), float32.encode(texts, role), strict=True):
            assert own.ids.tolist() == exact.ids.tolist()
            cosines = (own.vectors * exact.vectors).sum(axis=1)
            assert 0.95 < cosines.min() < 1 - 1e-7
    for text, together in zip(TEXTS, cheaper.encode(TEXTS, "document"), strict=True):
        np.testing.assert_array_equal(cheaper.encode([text], "document")[0].vectors, together.vectors)


@pytest.mark.parametrize("layout", [colbert, pylate])
def test_model_with_a_mask_or_a_projection_has_no_cheaper_precision(
    layout: Callable[[Path], Path], tmp_path: Path
) -> None:
    float32 = TokenEncoder(exported_reranker(str(layout(tmp_path / "model"))), 1)
    with pytest.raises(EncoderError, match=r"int8 needs|AVX2"):
        cheaper_reranker(float32, "int8", TEXTS)


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
