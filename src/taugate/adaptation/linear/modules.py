"""A linear map as the last layers of a model of sentence-transformers."""

from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router

from taugate.adaptation.linear.map import LinearMap
from taugate.calibration.export.torch_model import kind, of_modules


def adapted_model(model: SentenceTransformer, learned: LinearMap | None) -> SentenceTransformer:
    """Return a model whose vectors pass a map; where it keeps documents, only those of queries do.

    Then a Router has a route for each, and both share the modules of the base. A text without a task goes the way of
    documents.

    Args:
        model: That the map was learned from, which may change.
        learned: The map, None for none.
    """
    if learned is None or not learned.keeps_documents:
        append_map(model, learned)
        return model
    cut = model.truncate_dim
    documents: list[Any] = [*model]  # of classes that say little about themselves
    append_map(model, learned)
    queries: list[Any] = [*model]
    router = Router.for_query_document(query_modules=queries, document_modules=documents)
    # Only documents are cut: vectors of queries are as long when they come out of the map.
    return of_modules([router], model, cut)


def append_map(model: SentenceTransformer, learned: LinearMap | None) -> None:
    """Append a map, in place.

    It becomes a Dense module with a bias, between the normalisation of the model and one of its own, as it was learned
    from unit vectors. Where the model cuts its vectors off (truncate_dim), a Dense module that keeps the first
    components goes before: the map is of what is left.

    Args:
        model: That the map was learned from.
        learned: The map, None for none.
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
