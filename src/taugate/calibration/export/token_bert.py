"""Finds a BERT-like model of token vectors in an exported graph, for the weights of retrieval/rerank/token_bert.py."""

from dataclasses import dataclass

import numpy as np
import onnx

from taugate.calibration.export.bert import Bert
from taugate.calibration.export.bert_graph import PROBES, first_reproducing, read_layout
from taugate.calibration.export.weights_file import read_weight
from taugate.retrieval.encoder.bert import TOKENS
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.encoder.graph_weights import GraphWeights
from taugate.retrieval.rerank.token_bert import PROJECTION
from taugate.retrieval.rerank.token_encoder import TokenEncoder
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import Arrays

_LAYER_PRODUCTS = 6  # query, key, value, out, up, down
# Of a unit vector's component: ten times the effect of rounding, and a thousandth of that of another number of heads.
_MAX_DIFFERENCE = 1e-5


@dataclass(frozen=True)
class TokenBertModel:
    """A BERT-like model of token vectors in float32.

    Attributes:
        bert: The model.
        head: The projection by the name PROJECTION; empty without one.
    """

    bert: Bert
    head: Arrays

    def vectors(self, ids: list[int]) -> Float32:
        """Return the unit vectors of a text's tokens, (tokens, dimension)."""
        vectors = self.bert.forward(ids)[0]
        if PROJECTION in self.head:
            vectors = vectors @ self.head[PROJECTION].T
        unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


def find_token_bert(encoder: TokenEncoder) -> TokenBertModel | None:
    """Return the model in the graph of a float32 model of late interaction, None if it has another architecture.

    The kernel has no mask, so a model whose queries have tokens that others do not attend to counts as another one.
    """
    folder, config = encoder.folder, encoder.config
    if config.expansion is not None and not config.expansion.attended:
        return None
    texts, expected = encoder.tokenize(PROBES, "document"), encoder.encode(PROBES, "document")

    def model_of(variant: GraphWeights) -> TokenBertModel:
        shape = np.array([variant.heads, TOKENS], dtype=np.int64)
        return TokenBertModel(Bert.of(dict(variant.arrays(folder)) | {"shape": shape}), head)

    def reproduces(model: TokenBertModel) -> bool:
        for ids, (vectors, _) in zip(texts, expected, strict=True):
            own = model.vectors(ids)[~np.isin(ids, config.skipped["document"])]
            if own.shape != vectors.shape or not np.abs(own - vectors).max() < _MAX_DIFFERENCE:
                return False
        return True

    try:
        layout = read_layout(folder / MODEL, first_token=False)
        graph = onnx.load(folder / MODEL, load_external_data=False).graph
        tensor = _behind_layers(graph, layout.layers)
        head = {} if tensor is None else {PROJECTION: np.ascontiguousarray(read_weight(tensor, folder).T)}
        found = first_reproducing(layout, model_of, reproduces)
        return None if found is None else model_of(found)
    except (KeyError, ValueError, IndexError, StopIteration):
        return None


def _behind_layers(graph: onnx.GraphProto, layers: int) -> onnx.TensorProto | None:
    """Return the weights of the product behind the layers, (hidden, dimension); None without one.

    Raises:
        ValueError: If there are several.
    """
    named = {tensor.name: tensor for tensor in graph.initializer}
    weights = [node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in named]
    behind = weights[layers * _LAYER_PRODUCTS :]
    if len(behind) > 1:
        raise ValueError("more than one product behind the layers")
    return named[behind[0]] if behind else None
