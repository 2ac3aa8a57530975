"""Writes the graph of a BERT-like encoder from its weights, without PyTorch.

Its products have the shapes that PyTorch's tracer gives them, and its weights the names that bert_graph.py looks for.
"""

from contextlib import nullcontext
from itertools import count
from math import sqrt
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from taugate.calibration.export import weights
from taugate.calibration.export.bert import HEADS, WORDS, BertFolder
from taugate.errors import EncoderError
from taugate.release.encoder import DATA, MODEL

_OPSET, _IR = 17, 8  # the first with LayerNormalization as one operator
_POSITIONS = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_RELATIVE = "encoder.relative_attention_bias.weight"  # of MPNet
_FURTHEST = 128  # distance from which on MPNet has one weight for all tokens
_SHORTEST = 1e-12  # the length below which torch.nn.functional.normalize treats a vector as zero
# Names of the products and the norm of a layer's attention, in BERT and in MPNet.
_BERT = {name: f"attention.self.{name}" for name in ("query", "key", "value")}
_BERT |= {"out": "attention.output.dense", "norm": "attention.output"}
_MPNET = {role: f"attention.attn.{role[0]}" for role in ("query", "key", "value", "out")} | {"norm": "attention"}


def write_bert(model: BertFolder, target: Path, *, unit: bool) -> None:
    """Write model.onnx, and the file of weights of a large model, into the folder of an encoder."""
    large = weights.needs_separate_weights(sum(array.size for array in model.weights.values()))
    try:
        with (target / DATA).open("wb") if large else nullcontext() as file:
            graph = _Graph(model, file)
            vector = graph.pooled(graph.encoded())
            for number, (arrays, activation) in enumerate(model.dense()):
                vector = graph("MatMul", vector, graph.constant(f"dense.{number}", arrays["linear.weight"].T))
                if "linear.bias" in arrays:
                    vector = graph("Add", vector, graph.constant(f"dense.{number}.bias", arrays["linear.bias"]))
                vector = graph(activation, vector) if activation else vector
            if unit or model.declared.normalizes:
                length = graph("ReduceL2", vector, axes=[-1], keepdims=1)
                vector = graph("Div", vector, graph("Max", length, graph.constant("shortest", np.float32(_SHORTEST))))
            graph("Identity", vector, output="sentence_embedding")
            onnx.save(graph.proto(model.dimension), target / MODEL)
    except KeyError as error:
        raise EncoderError(
            f"encoder {model.name!r}: {model.declared.folder} has no weights {error}; copy the model again"
        ) from error


class _Graph:
    """The nodes and the constants of a graph, to which every call adds a node."""

    def __init__(self, model: BertFolder, file: BinaryIO | None) -> None:
        self._model, self._file = model, file
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = count()
        self._constants: dict[str, TensorProto] = {}

    def __call__(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:  # noqa: ANN401 (by operator)
        """Add a node, and return the name of its output."""
        output = output or f"{operator}.{next(self._numbers)}"
        self._nodes.append(helper.make_node(operator, [*inputs], [output], **attributes))
        return output

    def constant(self, name: str, value: NDArray[Any] | np.generic | list[int]) -> str:
        """Add a constant, in float32 if it is a float, unless there is one of that name, and return its name."""
        if name not in self._constants:
            array = np.asarray(value)
            array = np.ascontiguousarray(array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array)
            array = array.reshape(np.shape(value))
            self._constants[name] = (
                weights.in_graph(name, array)
                if self._file is None or array.dtype.kind != "f" or not array.ndim  # onnxruntime needs shapes at once
                else weights.append_weight(self._file, name, array)
            )
        return name

    def proto(self, dimension: int) -> onnx.ModelProto:
        """Return the model."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        vectors = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", dimension])
        graph = helper.make_graph(self._nodes, "encoder", inputs, [vectors], [*self._constants.values()])
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="taugate"
        )

    def encoded(self) -> str:
        """Add the embeddings and all layers, and return the vectors of the tokens, (batch, tokens, hidden)."""
        x, bias = self._embeddings(), self._bias()
        numbers = {name.split(".")[2] for name in self._model.weights if name.startswith("encoder.layer.")}
        for number in range(len(numbers)):
            x = self._layer(f"encoder.layer.{number}", x, bias)
        return x

    def pooled(self, x: str) -> str:
        """Add the pooling, and return a vector for each text, (batch, hidden)."""
        if self._model.pooling == "cls":
            return self("Gather", x, self._integer(0), axis=1)
        tokens = self("Cast", "attention_mask", to=TensorProto.FLOAT)
        # A product adds up the tokens in one order, whatever the number of texts.
        total = self("MatMul", self("Unsqueeze", tokens, self._axes(1)), x)
        tokens_of_text = self("ReduceSum", tokens, self._axes(1), keepdims=1)
        return self("Div", self("Squeeze", total, self._axes(1)), tokens_of_text)

    def _embeddings(self) -> str:
        padding = self._model.padding
        x = self("Gather", self._weight(WORDS), "input_ids")
        if _TYPES in self._model.weights:
            x = self("Add", x, self("Gather", self._weight(_TYPES), self._integer(0)))
        if padding is None:
            positions = self("Unsqueeze", self._range(), self._axes(0))
        else:
            is_padding = self("Equal", "input_ids", self._integer(padding))
            counted = self("Cast", self("Not", is_padding), to=TensorProto.INT64)
            numbers = self("Mul", self("CumSum", counted, self._integer(1)), counted)
            positions = self("Add", numbers, self._integer(padding))
        return self._norm("embeddings", self("Add", x, self("Gather", self._weight(_POSITIONS), positions)))

    def _bias(self) -> str:
        """Add what is added to the scores of attention: (batch, 1 or heads, 1 or tokens, tokens)."""
        mask = self("Unsqueeze", "attention_mask", self._axes(1, 2))
        lowest = self.constant("lowest", np.finfo(np.float32).min)
        bias = self("Where", self("Cast", mask, to=TensorProto.BOOL), self.constant("nothing", np.float32(0)), lowest)
        if _RELATIVE not in self._model.weights:
            return bias
        furthest, numbers = self._model.max_length - 1, self._range()
        keys, queries = (self("Unsqueeze", numbers, self._axes(axis)) for axis in (0, 1))
        place = self("Add", self("Sub", keys, queries), self._integer(furthest))
        table = self._model.weights[_RELATIVE][_buckets(np.arange(-furthest, furthest + 1))].T
        by_distance = self("Gather", self.constant("relative", table), place, axis=1)  # (heads, tokens, tokens)
        return self("Add", bias, self("Unsqueeze", by_distance, self._axes(0)))

    def _layer(self, layer: str, x: str, bias: str) -> str:
        named = _MPNET if _RELATIVE in self._model.weights else _BERT
        names = {role: f"{layer}.{name}" for role, name in named.items()}
        hidden = self._model.weights[WORDS].shape[1]
        heads = int(self._model.config.get("num_attention_heads", 12))
        width = hidden // heads
        shape = self.constant(HEADS, [0, 0, heads, width])

        def split(role: str, *order: int) -> str:
            return self("Transpose", self("Reshape", self._product(names[role], x), shape), perm=order)

        query = self("Mul", split("query", 0, 2, 1, 3), self.constant("scale", np.float32(width**-0.5)))
        mixed = self._mixed(query, split("key", 0, 2, 3, 1), split("value", 0, 2, 1, 3), bias)
        mixed = self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant("hidden", [0, 0, hidden]))
        x = self._norm(names["norm"], self("Add", self._product(names["out"], mixed), x))
        up = self._product(f"{layer}.intermediate.dense", x)
        error = self("Erf", self("Div", up, self.constant("root", np.float32(sqrt(2)))))
        doubled = self("Mul", up, self("Add", error, self.constant("unity", np.float32(1))))
        gelu = self("Mul", doubled, self.constant("half", np.float32(0.5)))
        return self._norm(f"{layer}.output", self("Add", self._product(f"{layer}.output.dense", gelu), x))

    def _mixed(self, query: str, key: str, value: str, bias: str) -> str:
        """Add the attention; of a model for long texts as a loop over blocks of queries, as in torch_model.py."""
        if self._model.max_length <= weights.LONG_TEXT or _RELATIVE in self._model.weights:
            return self("MatMul", self("Softmax", self("Add", self("MatMul", query, key), bias), axis=-1), value)
        block, outer = self._integer(weights.QUERY_BLOCK), self._nodes
        body: list[onnx.NodeProto] = []
        self._nodes = body
        start = self("Unsqueeze", self("Mul", "block", block), self._axes(0), output="start")
        rows = self("Slice", query, start, self("Add", start, block), self._axes(2))
        scores = self("Add", self("MatMul", rows, key), bias)
        part = self("MatMul", self("Softmax", scores, axis=-1), value)
        self("SequenceInsert", "parts", part, output="longer")
        self("Identity", "more", output="still")
        self._nodes = outer
        sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        scalars = {"block": TensorProto.INT64, "more": TensorProto.BOOL, "still": TensorProto.BOOL}
        values = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in scalars.items()}
        values |= {name: helper.make_value_info(name, sequence) for name in ("parts", "longer")}
        loop = helper.make_graph(
            body, "queries", [values[name] for name in ("block", "more", "parts")], [values["still"], values["longer"]]
        )
        blocks = self("Div", self("Add", self._tokens(), self._integer(weights.QUERY_BLOCK - 1)), block)
        parts = self("Loop", blocks, "", self("SequenceEmpty", dtype=TensorProto.FLOAT), body=loop)
        return self("ConcatFromSequence", parts, axis=2)

    def _product(self, name: str, x: str) -> str:
        weight = self.constant(f"{name}.transposed", self._model.weights[f"{name}.weight"].T)
        return self("Add", self("MatMul", x, weight), self._weight(f"{name}.bias"))

    def _norm(self, name: str, x: str) -> str:
        factor, offset = (self._weight(f"{name}.LayerNorm.{part}") for part in ("weight", "bias"))
        epsilon = float(self._model.config.get("layer_norm_eps", 1e-12))
        return self("LayerNormalization", x, factor, offset, axis=-1, epsilon=epsilon)

    def _tokens(self) -> str:
        """Add the number of tokens of a text."""
        return self("Gather", self("Shape", "input_ids"), self._integer(1))

    def _range(self) -> str:
        """Add the numbers of the tokens, (tokens,) int64."""
        return self("Range", self._integer(0), self._tokens(), self._integer(1))

    def _integer(self, value: int) -> str:
        return self.constant(f"integer.{value}", np.int64(value))

    def _axes(self, *axes: int) -> str:
        return self.constant(f"axes.{axes}", [*axes])

    def _weight(self, name: str) -> str:
        return self.constant(name, self._model.weights[name])


def _buckets(distances: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the weight that MPNet has for each distance between a key and a query: a number below 32.

    Half of the 32 are for keys after the query; of these, half are for single distances, and the others grow with the
    logarithm (Song et al., MPNet, NeurIPS 2020; transformers' relative_position_bucket).
    """
    half, single = 16, 8
    far = np.abs(distances)
    with np.errstate(divide="ignore"):
        logs = np.log(far.astype(np.float32) / np.float32(single)) / np.float32(np.log(_FURTHEST / single))
    grown = single + (logs * np.float32(half - single)).clip(0).astype(np.int64)
    return np.where(distances > 0, half, 0) + np.where(far < single, far, np.minimum(grown, half - 1))
