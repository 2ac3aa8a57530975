"""Export a sentence-transformers model to ONNX, pooling and normalisation in the graph, and check it against PyTorch.

This is the only module that imports PyTorch.
"""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from calibration.graph import sum_tokens_by_product
from calibration.probes import PROBES
from retrieval.encoder import CONFIG, MODEL, TOKENIZER, EncoderConfig, OnnxEncoder
from retrieval.errors import EncoderError
from retrieval.release.golden import TOLERANCE

# The graph must not move a similarity by more than a golden query may differ: |Δs| ≤ |Δv| = √(2(1 − cos)).
MAX_COSINE_DIFFERENCE = TOLERANCE**2 / 2
_OPSET = 17  # the lowest with LayerNormalization as one operator
_FIRST = {"Transformer", "StaticEmbedding"}
_LATER = {"Pooling", "Dense", "Normalize", "Dropout"}
_NO_LIMIT = 2**31 - 1  # tokens; StaticEmbedding reads texts of any length


class _SentenceEmbedding(torch.nn.Module):
    """(input_ids, attention_mask) → unit vectors; what SentenceTransformer.encode does to a padded batch."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.steps: Any = torch.nn.ModuleList(model)  # of classes that say little about their attributes
        self.truncate_dim: int | None = model.truncate_dim

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        first, *later = self.steps
        if _kind(first) == "StaticEmbedding":
            features = {"sentence_embedding": _bag_mean(first.embedding.weight, input_ids, attention_mask)}
        else:
            features = first({"input_ids": input_ids, "attention_mask": attention_mask})
        for module in later:
            features = module(features)
        vector: torch.Tensor = features["sentence_embedding"][:, : self.truncate_dim]
        unit = _kind(self.steps[-1]) == "Normalize" and self.truncate_dim is None
        return vector if unit else torch.nn.functional.normalize(vector, dim=-1)


def _bag_mean(weight: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of the token vectors under the mask: EmbeddingBag without its offsets, which ONNX cannot batch."""
    weights = mask.unsqueeze(-1).to(weight.dtype)
    return (weight[ids] * weights).sum(1) / weights.sum(1).clamp(min=1)


def export(folder: Path, name: str, revision: str, target: Path) -> None:
    """Write model.onnx, tokenizer.json and encoder.json into the empty folder `target`.

    Raises EncoderError, naming the module, when the model is of a kind that has no such graph, or when the graph and
    PyTorch differ by more than MAX_COSINE_DIFFERENCE on the probe texts.
    """
    model = _load(folder, name)
    _refuse_unknown_modules(model, name)
    tokenizer, max_length = _tokenizer(model, name)
    tokenizer.save(str(target / TOKENIZER))
    _write_graph(model, tokenizer, target / MODEL, name)
    if {path.name for path in target.iterdir()} > {MODEL, TOKENIZER}:
        raise EncoderError(f"encoder {name!r}: too large for one ONNX file (2 GB); choose a smaller model")
    sum_tokens_by_product(target / MODEL)
    config = EncoderConfig(
        name=name,
        revision=revision,
        dimension=int(model.truncate_dim or model.get_embedding_dimension() or 0),
        max_length=max_length,
        pooling=_pooling(model),
        query_prompt=_prompt(model, "query"),
        document_prompt=_prompt(model, "document", "passage", "corpus"),
        special_tokens=_is_transformer(model),
        pair_lone_texts=False,
        max_cosine_difference=0.0,
    )
    _write_config(config, target)
    encoder = OnnxEncoder.load(target)
    difference = _cosine_difference(model, encoder)
    if not difference <= MAX_COSINE_DIFFERENCE:
        raise EncoderError(
            f"encoder {name!r}: the exported graph and PyTorch differ by 1 − cosine = {difference:.2g} on the probe "
            f"texts, more than {MAX_COSINE_DIFFERENCE:.2g}; this model cannot be served as it was trained"
        )
    measured = {"max_cosine_difference": difference, "pair_lone_texts": _depends_on_company(encoder)}
    _write_config(config.model_copy(update=measured), target)


def _load(folder: Path, name: str) -> SentenceTransformer:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar over the weights of one small file
            return SentenceTransformer(str(folder), device="cpu", local_files_only=True).eval()
    except Exception as error:  # a damaged model folder raises whatever its loader happens to hit first
        raise EncoderError(f"encoder {name!r}: {folder} is no sentence-transformers model ({error})") from error


def _refuse_unknown_modules(model: SentenceTransformer, name: str) -> None:
    for position, module in enumerate(model):
        kind = _kind(module)
        if kind not in (_LATER if position else _FIRST):
            known = ", ".join(sorted(_LATER if position else _FIRST))
            raise EncoderError(
                f"encoder {name!r}: module {position} is a {kind}, which cannot be exported (known here: {known}); "
                "choose a model made of those"
            )
        if kind == "Pooling" and not module.include_prompt and any(model.prompts.values()):
            raise EncoderError(
                f"encoder {name!r}: module {position} (Pooling) leaves the prompt out of the mean, which "
                "depends on its length and cannot be exported; choose a model with include_prompt"
            )


def _kind(module: object) -> str:
    """Class name: module classes move between versions of sentence-transformers, their names do not."""
    return type(module).__name__


def _pooling(model: SentenceTransformer) -> str:
    """How token vectors become one; a static embedding takes their mean."""
    modules: list[Any] = list(model)
    modes = next((module.pooling_mode for module in modules if _kind(module) == "Pooling"), "mean")
    return modes if isinstance(modes, str) else "+".join(modes)


def _is_transformer(model: SentenceTransformer) -> bool:
    return _kind(model[0]) == "Transformer"


def _tokenizer(model: SentenceTransformer, name: str) -> tuple[Tokenizer, int]:
    """The fast tokenizer with truncation set as the model has it, and its maximum length in tokens."""
    fast = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
    if not isinstance(fast, Tokenizer):
        kind = type(model.tokenizer).__name__
        raise EncoderError(f"encoder {name!r}: module 0 has a {kind} without tokenizer.json; convert it to a fast one")
    tokenizer = Tokenizer.from_str(fast.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if not _is_transformer(model):
        return tokenizer, _NO_LIMIT
    first: Any = model[0]
    max_length = int(model.max_seq_length or first.config.max_position_embeddings)
    tokenizer.enable_truncation(max_length)
    return tokenizer, max_length


def _prompt(model: SentenceTransformer, *names: str) -> str:
    """The prompt that encode_query and encode_document would use: the role's own, else the default one."""
    prompts = model.prompts
    chosen = next((name for name in names if name in prompts), model.default_prompt_name)
    return (prompts.get(chosen) if chosen else None) or ""


def _write_graph(model: SentenceTransformer, tokenizer: Tokenizer, path: Path, name: str) -> None:
    lengths = [len(ids) for ids in (encoding.ids for encoding in tokenizer.encode_batch(["a short text", "b"]))]
    ids = torch.ones((2, max(lengths)), dtype=torch.long)
    mask = torch.tensor([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    axes: dict[str, Any] = {
        "input_ids": {0: "batch", 1: "tokens"},
        "attention_mask": {0: "batch", 1: "tokens"},
        "sentence_embedding": {0: "batch"},
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracer remarks about shapes that the cosine check below covers
            torch.onnx.export(
                _SentenceEmbedding(model),
                (ids, mask),
                str(path),
                input_names=["input_ids", "attention_mask"],
                output_names=["sentence_embedding"],
                dynamic_axes=axes,
                opset_version=_OPSET,
                dynamo=False,  # with dynamo=True onnxruntime refuses the graph (torch 2.13, onnxscript of 2026-11)
            )
    except Exception as error:  # the tracer and every operator raise types of their own
        architecture = type(getattr(model[0], "auto_model", model[0])).__name__
        raise EncoderError(
            f"encoder {name!r}: module 0 ({architecture}) cannot be exported to ONNX: {str(error).splitlines()[0]}"
        ) from error


def _write_config(config: EncoderConfig, target: Path) -> None:
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _depends_on_company(encoder: OnnxEncoder) -> bool:
    """Whether a text alone in its batch gets other bits than the same text in company."""
    pairs = encoder.encode([probe for probe in PROBES for _ in range(2)], "document")[::2]
    alone = np.concatenate([encoder.encode([probe], "document") for probe in PROBES])
    return not np.array_equal(pairs, alone)


def _cosine_difference(model: SentenceTransformer, encoder: OnnxEncoder) -> float:
    """Largest 1 − cosine between PyTorch and the graph, as query and as document, over the probe texts.

    As ½|a − b|², which is the same for unit vectors, exact for small angles, and 0 where both are the zero vector.
    """
    pairs = [(model.encode_query(PROBES, normalize_embeddings=True), encoder.encode(PROBES, "query"))]
    if encoder.config.query_prompt != encoder.config.document_prompt:
        pairs.append((model.encode_document(PROBES, normalize_embeddings=True), encoder.encode(PROBES, "document")))
    return max(float(((a.astype(np.float64) - b) ** 2).sum(axis=1).max()) / 2 for a, b in pairs)
