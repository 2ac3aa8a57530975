"""Finds a BERT-like cross-encoder in an exported graph, for weights that retrieval/rerank/pair_models.py reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from taugate.calibration.export.bert import Bert
from taugate.calibration.export.bert_graph import PROBES, first_reproducing, read_layout
from taugate.calibration.export.weights_file import read_weight
from taugate.retrieval.encoder.bert import FIRST_AS_IS
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.encoder.graph_weights import GraphWeights
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.pair_models import HEAD, head_of, typed_ids
from taugate.storage.tensors import Arrays

# Of an output: far more than rounding changes log-odds of ten, and a thousandth of what another number of heads does.
_MAX_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class PairBertModel:
    """A BERT-like cross-encoder in float32.

    Attributes:
        bert: The model.
        head: Arrays of its head, by the names in HEAD.
    """

    bert: Bert
    head: Arrays

    def ids(self, reranker: CrossEncoder, query: str, text: str) -> list[int]:
        """Return a pair as the model reads it, by the tokenizer of its reranker."""
        (pair,) = reranker.tokenize(query, [text])
        return typed_ids(pair, len(self.bert.words), len(self.bert.types))

    def output(self, ids: Sequence[int]) -> float:
        """Return the score of a pair before the activation."""
        dense, bias, score, constant = head_of(self.head, self.bert.words.shape[1])
        return float((np.tanh(dense @ self.bert.forward(ids)[0] + bias) @ score.T + constant)[0])


def find_pair_bert(reranker: CrossEncoder) -> PairBertModel | None:
    """Return the model in the graph of a float32 cross-encoder, None if the graph has another architecture."""
    folder, probes = reranker.folder, [(query, text) for query in PROBES for text in PROBES]
    expected = [float(reranker.outputs(reranker.tokenize(query, [text]))[0]) for query, text in probes]

    def model_of(variant: GraphWeights) -> PairBertModel:
        arrays = dict(variant.arrays(folder)) | (variant.types(folder) if typed else {})
        arrays["shape"] = np.array([variant.heads, FIRST_AS_IS], dtype=np.int64)
        return PairBertModel(Bert.of(arrays), head)

    def reproduces(model: PairBertModel) -> bool:
        outputs = (model.output(model.ids(reranker, query, text)) for query, text in probes)
        return all(abs(own - output) < _MAX_DIFFERENCE for own, output in zip(outputs, expected, strict=True))

    try:
        layout = read_layout(folder / MODEL, first_token=True)
        graph = onnx.load(folder / MODEL, load_external_data=False).graph
        typed = "token_type_ids" in {value.name for value in graph.input}
        weights = _head_weights(graph)
        head = {name: read_weight(tensor, folder) for name, tensor in zip(HEAD, weights, strict=True)}
        found = first_reproducing(layout, model_of, reproduces)
        return None if found is None else model_of(found)
    except (KeyError, ValueError, IndexError, StopIteration):
        return None


def _head_weights(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """Return the weights and offsets of the two products behind the first token, with tanh between them.

    Raises:
        ValueError: If the graph ends in anything else.
        KeyError: If a weight is not stored.
    """
    named = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "Gemm"]
    joined = [(node.input[0], node.output[0]) for node in graph.node if node.op_type == "Tanh"]
    if len(products) != 2 or joined != [(products[0].output[0], products[1].input[0])]:
        raise ValueError("the head is not two products with tanh between them")
    return [named[name] for node in products for name in node.input[1:]]
