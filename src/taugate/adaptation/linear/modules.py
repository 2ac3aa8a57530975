"""A linear map as the last layers of a sentence-transformers model."""

from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router

from taugate.adaptation.linear.map import LinearMap
from taugate.calibration.export.torch_model import kind, of_modules


def adapted_model(model: SentenceTransformer, learned: LinearMap | None) -> SentenceTransformer:
    """Return a model whose vectors pass a map; if the map keeps documents, only vectors of queries pass it.

    In that case a Router has a route for each, and both share the modules of the base. A text without a task takes the
    route of documents.

    Args:
        model: Model from which the map was learned; it may be modified.
        learned: The map, None without a map.
    """
    if learned is None or not learned.keeps_documents:
        append_map(model, learned)
        return model
    cut = model.truncate_dim
    documents: list[Any] = [*model]  # classes without useful types
    append_map(model, learned)
    queries: list[Any] = [*model]
    router = Router.for_query_document(query_modules=queries, document_modules=documents)
    # Only documents are truncated: the map already gives vectors of queries this length.
    return of_modules([router], model, cut)


def append_map(model: SentenceTransformer, learned: LinearMap | None) -> None:
    """Append a map, in place.

    It becomes a Dense module with a bias, between the normalisation of the model and a further one, because it was
    learned from unit vectors. If the model truncates its vectors (truncate_dim), a Dense module that keeps the first
    components comes before it, because the map is of the truncated vectors.

    Args:
        model: Model from which the map was learned.
        learned: The map, None without a map.
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
