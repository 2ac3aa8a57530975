"""A sentence-transformers model as a graph of two inputs, traced by PyTorch."""

import warnings
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from taugate.calibration.export.model import kind
from taugate.errors import EncoderError

_OPSET = 17  # the lowest with LayerNormalization as one operator


class _SentenceEmbedding(torch.nn.Module):
    """(input_ids, attention_mask) → unit vectors; what SentenceTransformer.encode does to a padded batch."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.steps: Any = torch.nn.ModuleList(model)  # of classes that say little about their attributes
        self.truncate_dim: int | None = model.truncate_dim

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        first, *later = self.steps
        if kind(first) == "StaticEmbedding":
            features = {"sentence_embedding": _bag_mean(first.embedding.weight, input_ids, attention_mask)}
        else:
            features = first({"input_ids": input_ids, "attention_mask": attention_mask})
        for module in later:
            features = module(features)
        vector: torch.Tensor = features["sentence_embedding"][:, : self.truncate_dim]
        unit = kind(self.steps[-1]) == "Normalize" and self.truncate_dim is None
        return vector if unit else torch.nn.functional.normalize(vector, dim=-1)


def _bag_mean(weight: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of the token vectors under the mask: EmbeddingBag without its offsets, which ONNX cannot batch."""
    weights = mask.unsqueeze(-1).to(weight.dtype)
    return (weight[ids] * weights).sum(1) / weights.sum(1).clamp(min=1)


def write_graph(model: SentenceTransformer, tokenizer: Tokenizer, path: Path, name: str) -> None:
    """Trace the model into an ONNX file. Raises EncoderError, naming the module, when it cannot be traced."""
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
