"""Finds a BERT-like model in an exported graph, by the names of weights that PyTorch's tracer keeps.

The graph is what every encoder has, also that of an earlier release. What it does not name, such as the number of
heads, is the first choice that reproduces its vectors.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from taugate.calibration.export.bert import Bert, BertLayer, Product
from taugate.retrieval.encoder.bert import BLOCK, LINEARS
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.vectors.similarity import Float32

_WORDS = "embeddings.word_embeddings.weight"
_DENSE = ("attention.output.dense", "intermediate.dense", "output.dense")
_LANES = 16  # a head's dimension is a multiple of it in kernel.c
# Of a vector's component: a thousand times the effect of rounding, and a hundredth of that of another number of heads.
_MAX_DIFFERENCE = 1e-4
_PROBES = ["threshold", "What is the warranty period for a new roof?", "naïve café, 197 °C: who pays, and why not?"]


def find_bert(encoder: ExportedEncoder) -> Bert | None:
    """Return the model in the graph of a float32 encoder, None if the graph has another architecture."""
    try:
        model = _read(encoder.folder / MODEL, first_token=encoder.config.pooling == "cls")
    except (KeyError, ValueError, StopIteration):
        return None
    if model.words.shape[1] % BLOCK or len(model.layers[0].products["up"].bias) % BLOCK:
        return None
    ids, vectors = [tokens.ids for tokens in encoder.tokenize(_PROBES, "query")], encoder.encode(_PROBES, "query")
    for candidate in _variants(model):
        if all(_gives(candidate, text, vector) for text, vector in zip(ids, vectors, strict=True)):
            return candidate
    return None


def _variants(model: Bert) -> Iterator[Bert]:
    """Yield the model with every possible number of heads, and with positions from 0 or, as in RoBERTa, from 2."""
    hidden = model.words.shape[1]
    for dimension, start in itertools.product((64, 32, *range(_LANES, 257, _LANES)), (0, 2)):
        if hidden % dimension == 0:
            yield replace(model, heads=hidden // dimension, positions=model.positions[start:])


def _gives(model: Bert, ids: Sequence[int], vector: Float32) -> bool:
    """Return whether the model's vector of a text is nearly the graph's."""
    own = model.forward(ids)[0]
    return own.shape == vector.shape and bool(np.abs(own - vector).max() < _MAX_DIFFERENCE)


def _read(path: Path, *, first_token: bool) -> Bert:
    """Read the weights of a graph, without the number of heads.

    Raises:
        KeyError: If a weight is missing.
        ValueError: If layers differ in their epsilon.
        StopIteration: If there are no word embeddings.
    """
    graph = onnx.load(path).graph
    named = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    products = _products(graph, named)
    prefix = next(name for name in named if name.endswith(_WORDS)).removesuffix(_WORDS)

    def norm(name: str) -> Float32:
        return np.stack([named[f"{prefix}{name}.LayerNorm.weight"], named[f"{prefix}{name}.LayerNorm.bias"]])

    def layer(number: int) -> BertLayer:
        place = f"encoder.layer.{number}"
        separate = [products[f"{prefix}{place}.attention.self.{name}"] for name in ("query", "key", "value")]
        joined = Product(*(np.concatenate(arrays) for arrays in zip(*separate, strict=True)))
        parts = (joined, *(products[f"{prefix}{place}.{name}"] for name in _DENSE))
        norms = norm(f"{place}.attention.output"), norm(f"{place}.output")
        return BertLayer(dict(zip(LINEARS, parts, strict=True)), *norms)

    layers = sum(name.endswith(".attention.self.query") for name in products)
    nodes = (node for node in graph.node if node.op_type == "LayerNormalization")
    (epsilon,) = {attribute.f for node in nodes for attribute in node.attribute if attribute.name == "epsilon"}
    token_type = named[f"{prefix}embeddings.token_type_embeddings.weight"][0]
    return Bert(
        words=named[f"{prefix}{_WORDS}"],
        positions=named[f"{prefix}embeddings.position_embeddings.weight"] + token_type,
        norm=norm("embeddings"),
        layers=tuple(layer(number) for number in range(layers)),
        heads=1,
        epsilon=epsilon,
        first_token=first_token,
    )


def _products(graph: onnx.GraphProto, named: dict[str, Float32]) -> dict[str, Product]:
    """Return every x·W + b of a graph by the name of its layer, which only b has."""
    makers = {output: node for node in graph.node for output in node.output}
    products: dict[str, Product] = {}
    for node in graph.node:
        bias = next((name for name in node.input if name.endswith(".bias") and name in named), None)
        if node.op_type == "Add" and bias is not None:
            maker = next((makers[name] for name in node.input if name in makers), None)
            if maker is not None and maker.op_type == "MatMul" and maker.input[1] in named:
                products[bias.removesuffix(".bias")] = Product(named[maker.input[1]].T, named[bias])
    return products
