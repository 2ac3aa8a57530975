"""A linear map as the last layers of a model of sentence-transformers."""

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from taugate.adaptation.linear.map import LinearMap
from taugate.calibration.export.torch_model import kind


def append_map(model: SentenceTransformer, learned: LinearMap | None) -> None:
    """Append a map, in place.

    It becomes a Dense module with a bias, between the normalisation of the model and one of its own, as it was learned
    from unit vectors. Where the model cuts its vectors off (truncate_dim), a Dense module that keeps the first
    components goes before: the map is of what is left.

    model: that the map was learned from; learned: the map, None for none.
    """
    if learned is None:
        return
    if model.truncate_dim is not None:
        model.truncate_dim = None
        kept = np.eye(len(learned.bias), model.get_embedding_dimension(), dtype=np.float32)
        _append(model, _dense(LinearMap(kept, np.zeros(len(kept), dtype=np.float32))))
        _append(model, Normalize())
    elif kind(model[-1]) != "Normalize":
        _append(model, Normalize())
    _append(model, _dense(learned))
    _append(model, Normalize())


def _append(model: SentenceTransformer, module: torch.nn.Module) -> None:
    model.add_module(str(len(model)), module)


def _dense(learned: LinearMap) -> Dense:
    after, before = learned.weight.shape
    return Dense(
        before,
        after,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(learned.weight),
        init_bias=torch.from_numpy(learned.bias),
    )
