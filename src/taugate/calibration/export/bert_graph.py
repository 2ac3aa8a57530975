"""Finds a BERT-like model or cross-encoder in an exported graph, by the names of weights that PyTorch keeps.

The graph is what every encoder has, also that of an earlier release. What it does not name, such as the number of
heads, is the first choice that reproduces its vectors.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from taugate.calibration.export.bert import HEADS, WORDS, Bert
from taugate.calibration.export.weights import read_weight
from taugate.policy.arrays import Float32
from taugate.release.encoder import MODEL
from taugate.retrieval.encoder.bert import BLOCK, FIRST_AS_IS, TOKENS, GraphWeights
from taugate.retrieval.encoder.encoder import ExportedEncoder, read_config
from taugate.retrieval.rerank.cross_encoder import HEAD, CrossEncoder, head_of, typed_ids
from taugate.retrieval.rerank.late_interaction import TokenEncoder
from taugate.storage.tensors import Arrays

_M = TypeVar("_M")
_DENSE: dict[str, str] = {"out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense"}
_LANES = 16  # a head's dimension is a multiple of it in kernel.c
# Of a vector's component: ten times the effect of rounding, and a thousandth of that of another number of heads.
_MAX_DIFFERENCE = 1e-5
PROBES = ["threshold", "What is the warranty period for a new roof?", "naïve café, 197 °C: who pays, and why not?"]

# Of an output: far more than rounding changes log-odds of ten, and a thousandth of what another number of heads does.
_MAX_PAIR_DIFFERENCE = 1e-3


def find_bert(folder: Path) -> Bert | None:
    """Return the model in the graph of a float32 encoder, None if the graph has another architecture."""
    layout = find_layout(folder)
    return None if layout is None else Bert.of(layout.arrays(folder))


def find_layout(folder: Path) -> GraphWeights | None:
    """Return where the graph of a float32 encoder has its weights, None if it has another architecture.

    Args:
        folder: Folder of the encoder. It is loaded here, and released before its weights are read once more.
    """
    try:
        layout = read_layout(folder / MODEL, first_token=read_config(folder).pooling == "cls")
        encoder = ExportedEncoder.load(folder)
        ids = [tokens.ids for tokens in encoder.tokenize(PROBES, "query")]
        vectors = encoder.encode(PROBES, "query")[:, : encoder.config.model_dimension]
        del encoder
        return first_reproducing(
            layout,
            lambda variant: Bert.of(variant.arrays(folder)),
            lambda model: all(_gives(model, text, vector) for text, vector in zip(ids, vectors, strict=True)),
        )
    except (KeyError, ValueError, IndexError, StopIteration):
        return None


def find_token_bert(encoder: TokenEncoder) -> Bert | None:
    """Return the model in the graph of a float32 model of late interaction, None if the graph has another architecture.

    A projection of the vectors counts as another one, and so do tokens that others do not attend to: the kernel has
    no mask.
    """
    skipped, expansion = encoder.config.skipped["document"], encoder.config.expansion
    if expansion is not None and not expansion.attended:
        return None
    texts, encoded = encoder.tokenize(PROBES, "document"), encoder.encode(PROBES, "document")

    def model_of(variant: GraphWeights) -> Bert:
        return replace(Bert.of(variant.arrays(encoder.folder)), pooling=TOKENS)

    def gives(model: Bert, ids: list[int], vectors: Float32) -> bool:
        own = model.forward(ids)[0][~np.isin(ids, skipped)]
        own = own / np.linalg.norm(own, axis=1, keepdims=True)
        return own.shape == vectors.shape and bool(np.abs(own - vectors).max() < _MAX_DIFFERENCE)

    try:
        found = first_reproducing(
            read_layout(encoder.folder / MODEL, first_token=False),
            model_of,
            lambda model: all(gives(model, ids, text.vectors) for ids, text in zip(texts, encoded, strict=True)),
        )
        return None if found is None else model_of(found)
    except (KeyError, ValueError, IndexError, StopIteration):
        return None


def first_reproducing(
    layout: GraphWeights, model_of: Callable[[GraphWeights], _M], reproduces: Callable[[_M], bool]
) -> GraphWeights | None:
    """Return the first variant of a model that reproduces what the graph gives for the probes."""
    variants = _variants(layout, layout.tensors["0.up.weight"][1])
    return next((variant for variant in variants if reproduces(model_of(variant))), None)


def _variants(layout: GraphWeights, hidden: int) -> Iterator[GraphWeights]:
    """Yield the model with every possible number of heads, and with positions from 0 or, as in RoBERTa, from 2."""
    named = [hidden // layout.heads] if layout.heads > 1 else []
    for dimension, start in itertools.product((*named, 64, 32, *range(_LANES, 257, _LANES)), (0, 2)):
        if hidden % dimension == 0:
            yield layout.model_copy(update={"heads": hidden // dimension, "first_position": start})


def _gives(model: Bert, ids: Sequence[int], vector: Float32) -> bool:
    """Return whether the model's vector of a text is nearly the graph's."""
    own = model.forward(ids)[0]
    return own.shape == vector.shape and bool(np.abs(own - vector).max() < _MAX_DIFFERENCE)


def read_layout(path: Path, *, first_token: bool) -> GraphWeights:
    """Find the weights of a graph, without the first position, and without the number of heads if it has no name."""
    stored = path.read_bytes()
    graph = onnx.load_from_string(stored).graph
    named = {tensor.name: tensor for tensor in graph.initializer}
    offsets, end = dict[str, int](), 0
    for name, tensor in named.items():  # in the order of the file
        if (start := stored.find(tensor.raw_data, end)) >= end and tensor.raw_data:
            offsets[name], end = start, start + len(tensor.raw_data)
    products = _products(graph, named)
    prefix = next(name for name in named if name.endswith(WORDS)).removesuffix(WORDS)

    def place(name: str) -> tuple[int, ...]:
        tensor = named[name]
        if tensor.data_type != onnx.TensorProto.FLOAT:
            raise ValueError(f"{name} is not in float32")
        if tensor.external_data:
            return int({entry.key: entry.value for entry in tensor.external_data}["offset"]), *tensor.dims
        return offsets[name], *tensor.dims

    def pair(target: str, weight: str, bias: str) -> dict[str, tuple[int, ...]]:
        return {f"{target}.weight": place(weight), f"{target}.bias": place(bias)}

    def norm(target: str, name: str) -> dict[str, tuple[int, ...]]:
        return pair(target, f"{prefix}{name}.LayerNorm.weight", f"{prefix}{name}.LayerNorm.bias")

    tensors = {
        "words": place(f"{prefix}{WORDS}"),
        "positions": place(f"{prefix}embeddings.position_embeddings.weight"),
        "token_types": place(f"{prefix}embeddings.token_type_embeddings.weight"),
        **norm("norm", "embeddings"),
    }
    for number in range(sum(name.endswith(".attention.self.query") for name in products)):
        layer = f"encoder.layer.{number}"
        names = _DENSE | {name: f"attention.self.{name}" for name in ("query", "key", "value")}
        for target, name in names.items():
            tensors |= pair(f"{number}.{target}", *products[f"{prefix}{layer}.{name}"])
        tensors |= norm(f"{number}.norm1", f"{layer}.attention.output") | norm(f"{number}.norm2", f"{layer}.output")
    nodes = (node for node in graph.node if node.op_type == "LayerNormalization")
    if any(size % BLOCK for size in tensors["0.up.weight"][1:]):
        raise ValueError("hidden sizes are no multiples of the kernel's block")
    (epsilon,) = {attribute.f for node in nodes for attribute in node.attribute if attribute.name == "epsilon"}
    heads = int(numpy_helper.to_array(named[HEADS])[2]) if HEADS in named else 1
    return GraphWeights(heads=heads, first_token=first_token, first_position=0, epsilon=epsilon, tensors=tensors)


def _products(graph: onnx.GraphProto, named: dict[str, onnx.TensorProto]) -> dict[str, tuple[str, str]]:
    """Return the names of W and b of every x·W + b in a graph, by the name of its layer, which only b has."""
    makers = {output: node for node in graph.node for output in node.output}
    products: dict[str, tuple[str, str]] = {}
    for node in graph.node:
        bias = next((name for name in node.input if name.endswith(".bias") and name in named), None)
        if node.op_type == "Add" and bias is not None:
            maker = next((makers[name] for name in node.input if name in makers), None)
            if maker is not None and maker.op_type == "MatMul" and maker.input[1] in named:
                products[bias.removesuffix(".bias")] = (maker.input[1], bias)
    return products


@dataclass(frozen=True)
class PairBertModel:
    """A BERT-like cross-encoder in float32."""

    bert: Bert
    head: Arrays  # arrays of its head, by the names in HEAD

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
        return all(abs(own - output) < _MAX_PAIR_DIFFERENCE for own, output in zip(outputs, expected, strict=True))

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
    """Return the weights and offsets of the two products behind the first token, with tanh between them."""
    named = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "Gemm"]
    joined = [(node.input[0], node.output[0]) for node in graph.node if node.op_type == "Tanh"]
    if len(products) != 2 or joined != [(products[0].output[0], products[1].input[0])]:
        raise ValueError("the head is not two products with tanh between them")
    return [named[name] for node in products for name in node.input[1:]]
