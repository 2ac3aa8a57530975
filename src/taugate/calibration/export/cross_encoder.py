"""Exports a cross-encoder of sentence-transformers to ONNX, and checks it against PyTorch."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder as TorchCrossEncoder
from transformers.utils.logging import disable_progress_bar

from taugate.calibration.export.onnx_export import PROBES
from taugate.calibration.export.torch_model import check_difference, tokenizer_of, trace
from taugate.errors import EncoderError
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.encoder.tokenizer import TOKENIZER
from taugate.retrieval.release.reranker_adaptation import read_reranker_adaptation
from taugate.retrieval.rerank.cross_encoder import CONFIG, Activation, CrossEncoder, CrossEncoderConfig
from taugate.retrieval.rerank.pair_models import INPUTS
from taugate.retrieval.vectors.similarity import Float32

_STEPS = (0, 1, 5)  # from a probe to the probes that it is paired with: itself, a neighbour, and one of another length
_ACTIVATIONS: dict[str, Activation] = {"Sigmoid": "sigmoid", "Identity": "identity"}


def export_cross_encoder(folder: Path, name: str, revision: str, target: Path) -> None:
    """Write model.onnx, tokenizer.json and reranker.json into an empty folder.

    Args:
        folder: Folder that CrossEncoder.save_pretrained wrote.
        name: Name to record.
        revision: Revision to record.
        target: The empty folder.

    Raises:
        EncoderError: If the model is no cross-encoder of one label, cannot be exported, or if the graph's scores differ
            from PyTorch's by more than golden queries allow on pairs of the probe texts.
    """
    model = _loaded(folder, name)
    activation = _ACTIVATIONS.get(type(model.activation_fn).__name__)
    if model.num_labels != 1 or activation is None:
        function = type(model.activation_fn).__name__
        raise EncoderError(
            f"reranker {name!r}: has {model.num_labels} labels and the activation {function}; choose a "
            "cross-encoder with one label and Sigmoid or Identity"
        )
    adaptation = read_reranker_adaptation(folder)
    pair_model: Any = model  # has what `tokenizer_of` reads of an encoder
    tokenizer, max_length = tokenizer_of(pair_model, name)
    (target / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    _write_graph(model, target / MODEL, name, max_length)
    config = CrossEncoderConfig(
        name=name,
        revision=revision,
        max_length=max_length,
        activation=activation,
        max_difference=0.0,
        first_stage_weight=0.0 if adaptation is None else adaptation.first_stage_weight,
    )
    _write_config(config, target)
    texts = [[PROBES[(place + step) % len(PROBES)] for step in _STEPS] for place in range(len(PROBES))]
    expected = [_scores(model, query, own) for query, own in zip(PROBES, texts, strict=True)]
    exported = CrossEncoder(target)
    difference = max(
        float(np.abs(scores - exported.score(query, own)).max())
        for query, own, scores in zip(PROBES, texts, expected, strict=True)
    )
    check_difference(difference, name)
    _write_config(config.model_copy(update={"max_difference": difference}), target)


def _loaded(folder: Path, name: str) -> TorchCrossEncoder:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading one file of weights
    try:
        stored = {"dtype": torch.float32}
        model: TorchCrossEncoder = TorchCrossEncoder(
            str(folder), device="cpu", local_files_only=True, model_kwargs=stored
        )
    except Exception as error:  # a damaged model folder raises whatever its loader happens to hit first
        raise EncoderError(f"reranker {name!r}: {folder} is not a cross-encoder ({error})") from error
    model.float().eval()
    return model


def _scores(model: TorchCrossEncoder, query: str, texts: list[str]) -> Float32:
    pairs: list[Any] = [[query, text] for text in texts]
    return np.asarray(model.predict(pairs, batch_size=len(_STEPS), show_progress_bar=False), dtype=np.float32)


class _Logits(torch.nn.Module):
    """(input_ids, attention_mask, token_type_ids) → the score of each pair before the activation, (n, 1)."""

    def __init__(self, model: TorchCrossEncoder, inputs: list[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.names = inputs

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(dict(zip(self.names, tensors, strict=True)))["scores"]
        return scores.reshape(-1, 1)


def _write_graph(model: TorchCrossEncoder, path: Path, name: str, max_length: int) -> None:
    """Trace the model with the inputs that its tokenizer gives; raises EncoderError if it cannot be traced."""
    features = model.tokenizer([("a query", "a text"), ("b", "c")], padding=True, return_tensors="pt")
    inputs = [name for name in INPUTS if name in features]
    trace(
        _Logits(model, inputs),
        {name: features[name] for name in inputs},
        {"logits": {0: "batch"}},
        path,
        f"reranker {name!r}:",
        max_length=max_length,
    )


def _write_config(config: CrossEncoderConfig, target: Path) -> None:
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
