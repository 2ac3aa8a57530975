"""A linear map as the last layers of a model of sentence-transformers."""

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from taugate.adaptation.linear.map import LinearMap
from taugate.calibration.export.torch_model import kind


def append_map(model: SentenceTransformer, learned: LinearMap) -> None:
    """Append a map, in place.

    It becomes a Dense module with a bias, between the normalisation of the model and one of its own: it was learned from
    unit vectors.

    model: that the map was learned from; learned: the map.
    """
    if kind(model[-1]) != "Normalize":
        _append(model, Normalize())
    _append(model, _dense(learned))
    _append(model, Normalize())


def _append(model: SentenceTransformer, module: torch.nn.Module) -> None:
    model.add_module(str(len(model)), module)


def _dense(learned: LinearMap) -> Dense:
    dimension = len(learned.bias)
    return Dense(
        dimension,
        dimension,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(learned.weight),
        init_bias=torch.from_numpy(learned.bias),
    )
