"""The last layers of a transformer, trained over the stored hidden states of the lower layers.

The contrastive loss of sentence-transformers over batches in which many queries share a document. A document is ten
times as long as a query, and in many data sets several queries ask about a document. A document that is repeated in a
batch is encoded once, and is not a negative of its own queries.

The lower layers do not change, so their states of a text are computed once and stored. In a model of six layers, a step
that trains two of them then costs a third of a full step, and no gradient flows through the other layers.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from torch import nn

from taugate.calibration.export.torch_model import is_transformer
from taugate.errors import EncoderError
from taugate_adapt.training.run import TrainingRun

REPEATS = "repeats"  # feature of a column, (b,): for each text its line among the encoded texts
TEXTS = "texts"  # feature of a column, (u,): a number for each encoded text, the same in all columns

LAYERS = 2  # number of layers that learn by default
_BATCH = 32  # texts whose states are computed together
_STATES = "states"  # feature of a batch


class RepeatedTextsLoss(MultipleNegativesRankingLoss):
    """The contrastive loss for features of distinct texts, with REPEATS and TEXTS."""

    def forward(self, sentence_features: Iterable[dict[str, torch.Tensor]], labels: torch.Tensor) -> torch.Tensor:
        """Return the loss for the features of anchors, positives and negatives; `labels` is not used."""
        columns = [dict(features) for features in sentence_features]
        repeats = [features.pop(REPEATS) for features in columns]
        texts = [features.pop(TEXTS)[lines] for features, lines in zip(columns, repeats, strict=True)]
        embedded = embed_columns(self.model, columns)
        same = own_documents(texts[1], torch.cat(texts[1:]))

        def similarities(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            return cos_sim(queries, documents).masked_fill(same, -torch.inf)

        self.similarity_fct = similarities
        repeated = [vectors[lines] for vectors, lines in zip(embedded, repeats, strict=True)]
        loss: torch.Tensor = self.compute_loss_from_embeddings(repeated, labels)
        return loss


def own_documents(positives: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Mark the further copies of the positive of each query, (b, n) bool.

    Args:
        documents: (n,) numbers of all documents, the positives first.
    """
    same = documents[None, :] == positives[:, None]
    return same.fill_diagonal_(False)


def states_file(run: TrainingRun) -> Path:
    """Return the file of the states that a run computes."""
    return run.folder / "states.safetensors"


def transformer_layers(model: SentenceTransformer, name: str) -> nn.ModuleList:
    """Return the layers of the transformer, first to last."""
    if is_transformer(model):
        first: Any = model[0]
        count = first.auto_model.config.num_hidden_layers
        for module in first.auto_model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == count > 1:
                return module
    raise EncoderError(
        f"encoder {name!r}: has no transformer with several layers, which this recipe trains; choose --recipe adapter"
    )


@dataclass(frozen=True)
class LowerStates:
    """Hidden states of the lower layers of a transformer for every token of some texts.

    Attributes:
        ends: (n + 1,) int64, text i has the tokens ends[i] … ends[i + 1] − 1.
    """

    rows: dict[str, int]
    states: NDArray[np.float16]
    ends: NDArray[np.int64]

    @classmethod
    def compute(cls, model: SentenceTransformer, name: str, upper: int, texts: Sequence[str], run: TrainingRun) -> Self:
        """Compute the states of each text, or read the states stored by an earlier run."""
        rows, kept = {text: row for row, text in enumerate(texts)}, states_file(run)
        if kept.is_file():
            stored = load_file(kept)
            return cls(rows, stored["states"], stored["ends"])
        layers, first = transformer_layers(model, name), _first(model)
        boundary = len(layers) - min(upper, len(layers) - 1) - 1
        seen: list[torch.Tensor] = []
        hook = layers[boundary].register_forward_hook(lambda *call: seen.append(_hidden(call[-1])))
        collected: list[NDArray[np.float16]] = [np.empty((0, 0), np.float16)] * len(texts)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        model.eval()
        try:
            passing = _passing(layers, boundary + 1, len(layers), in_tuple=_gives_tuple(model, layers))
            with run.job.task("computing hidden states", len(texts)) as task, passing:
                for start in range(0, len(texts), _BATCH):
                    batch = order[start : start + _BATCH]
                    features = first.preprocess([texts[row] for row in batch])
                    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=run.bfloat16):
                        first({key: _moved(value, model.device) for key, value in features.items()})
                    states = seen.pop().to(torch.float16).cpu().numpy()
                    masks = features["attention_mask"].bool().numpy()
                    for row, of_text, mask in zip(batch, states, masks, strict=True):
                        collected[row] = of_text[mask]
                    task.advance(len(batch))
        finally:
            hook.remove()
        ends = np.cumsum([0, *map(len, collected)])
        arrays = {"states": np.concatenate(collected), "ends": ends}
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".partial")
        save_file(arrays, partial)
        partial.replace(kept)
        return cls(rows, arrays["states"], ends)

    def padded(self, texts: Sequence[str], mask: torch.Tensor) -> torch.Tensor:
        """Return the states of b texts at the tokens of a (b, t) mask, (b, t, h) float32, and zeros elsewhere."""
        padded = torch.zeros((*mask.shape, self.states.shape[1]))
        for line, text in enumerate(texts):
            row = self.rows[text]
            states = np.array(self.states[self.ends[row] : self.ends[row + 1]], dtype=np.float32)
            padded[line, mask[line].bool()] = torch.from_numpy(states)
        return padded


@contextmanager
def upper_model(
    model: SentenceTransformer, name: str, upper: int, states: LowerStates
) -> Iterator[SentenceTransformer]:
    """Yield a model of the same modules that starts at the states; only its upper layers require a gradient."""
    layers = transformer_layers(model, name)
    boundary = len(layers) - min(upper, len(layers) - 1) - 1
    model.requires_grad_(False)
    for layer in layers[boundary + 1 :]:
        layer.requires_grad_(True)
    with _passing(layers, 0, boundary + 1, in_tuple=_gives_tuple(model, layers)) as passing:
        yield SentenceTransformer(
            modules=[_FromStates(_first(model), states, passing[-1]), *list(model)[1:]], device="cpu"
        )


class _Pass(nn.Module):
    """Replaces a layer: returns its input, or the states that were set."""

    def __init__(self, *, in_tuple: bool) -> None:
        super().__init__()
        self.in_tuple = in_tuple
        self.states: torch.Tensor | None = None

    def forward(self, hidden_states: torch.Tensor, *_: object, **__: object) -> object:
        states = hidden_states if self.states is None else self.states
        return (states,) if self.in_tuple else states


class _FromStates(Module):
    """The transformer of a model whose last lower layer returns the stored states."""

    def __init__(self, transformer: Any, states: LowerStates, last: _Pass) -> None:  # noqa: ANN401 (without types)
        super().__init__()  # type: ignore[no-untyped-call]
        self.transformer: Any = transformer
        self._states, self._last = states, last

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **options: object
    ) -> dict[str, torch.Tensor]:
        distinct = [*dict.fromkeys(inputs)]
        lines = {text: line for line, text in enumerate(distinct)}
        features: dict[str, torch.Tensor] = self.transformer.preprocess(distinct, prompt, **options)
        features[_STATES] = self._states.padded(distinct, features["attention_mask"])
        features[REPEATS] = torch.tensor([lines[text] for text in inputs])
        features[TEXTS] = torch.tensor([self._states.rows[text] for text in distinct])
        return features

    def forward(self, features: dict[str, torch.Tensor], **options: object) -> dict[str, torch.Tensor]:
        self._last.states = features.pop(_STATES)
        try:
            output: dict[str, torch.Tensor] = self.transformer(features, **options)
        finally:
            self._last.states = None
        return output

    def save(self, *_: object, **__: object) -> None:
        raise NotImplementedError("save the complete model, not this view")


@contextmanager
def _passing(layers: nn.ModuleList, start: int, stop: int, *, in_tuple: bool) -> Iterator[list[_Pass]]:
    """Replace layers by pass-through layers inside a `with` block."""
    real = list(layers)
    passing = [_Pass(in_tuple=in_tuple) for _ in range(start, stop)]
    try:
        for place, replacement in zip(range(start, stop), passing, strict=True):
            layers[place] = replacement
        yield passing
    finally:
        for place, layer in enumerate(real):
            layers[place] = layer


def _gives_tuple(model: SentenceTransformer, layers: nn.ModuleList) -> bool:
    """Return whether a layer returns a tuple instead of a tensor, tested with a short text."""
    first, seen = _first(model), list[bool]()
    hook = layers[0].register_forward_hook(lambda *call: seen.append(isinstance(call[-1], tuple)))
    try:
        with torch.no_grad():
            first({key: _moved(value, model.device) for key, value in first.preprocess(["?"]).items()})
    finally:
        hook.remove()
    return seen[0]


def _hidden(output: Any) -> torch.Tensor:  # noqa: ANN401 (a tensor, or a tuple that begins with one)
    hidden: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return hidden.detach()


def _moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 (features are tensors and others)
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _first(model: SentenceTransformer) -> Any:  # noqa: ANN401 (a module of sentence-transformers, without types)
    return model[0]
