"""Write an exported encoder with int8 weights, whose vectors depend on their text alone.

onnxruntime's dynamic quantisation uses one scale for all activations of a batch, so a query's vector depends on the
other queries in the batch. Its static quantisation fixes the scales beforehand and loses a point of accuracy
(docs/gate.md). Here each token has its own scale (Yao et al., ZeroQuant, NeurIPS 2022, §4.1), and so has each output
channel of the weights: x·W ≈ s·(q·Q)·c with s = max|x| / 127, q = round(x / s) in 8 bits and Q = round(W / c) in 7.
Processors without VNNI add pairs of products in 16 bits: 2 · 255 · 64 fits, and an eighth bit would overflow. Sums of
integers are exact, so a vector does not depend on the batch, the number of threads or the processor.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from taugate.calibration.export.weights_file import append_weight, read_weight
from taugate.retrieval.encoder.graph import DATA

Store = Callable[[str, NDArray[np.generic]], TensorProto]  # makes a constant of its name and its array
_MIN_MAGNITUDE = 1e-12  # lower limit of a token's largest activation, so that zeros are not divided by zero
_MAX_ACTIVATION, _MAX_WEIGHT = 127, 64
_ZERO = 128  # zero point in uint8; the kernels for uint8 activations are the fast ones
_CONTRIB = "com.microsoft"  # MatMulIntegerToFloat: integer product and channel scales in one pass


def quantize(source: Path, target: Path) -> int:
    """Write a graph with every product by constant weights in int8; returns the number of tensors replaced.

    Weights in a file of their own are read and written in turn.

    Args:
        source: ONNX file of the graph in float32.
        target: ONNX file to write, in another folder.
    """
    with ExitStack() as stack:
        store: Store = _in_graph
        if (source.parent / DATA).is_file():  # embeddings, which are no products, may be too large for the graph
            store = partial(append_weight, stack.enter_context((target.parent / DATA).open("wb")))
        return _quantize(source, target, store)


def _in_graph(name: str, array: NDArray[np.generic]) -> TensorProto:
    return numpy_helper.from_array(array, name)


def _quantize(source: Path, target: Path, store: Store) -> int:
    model = onnx.load(source, load_external_data=False)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shared = {name: name for name in weights}  # a weight that several layers share has further names
    nodes: list[onnx.NodeProto] = []
    constants, quantized = _shared_constants(), set[str]()
    for node in model.graph.node:
        if node.op_type == "Identity" and node.input[0] in shared:
            shared[node.output[0]] = shared[node.input[0]]
        if node.op_type != "MatMul" or node.input[1] not in shared:
            nodes.append(node)
            continue
        x, w = node.input[0], shared[node.input[1]]
        if x not in quantized:  # queries, keys and values are products of the same activations
            nodes += _activations(x)
        if w not in quantized:
            constants += _weights(read_weight(weights[w], source.parent), w, store)
        quantized |= {x, w}
        nodes += _product(x, w, node.output[0])
    replaced = quantized & set(weights)
    read = {name for node in nodes for name in node.input}
    unchanged = [
        store(tensor.name, read_weight(tensor, source.parent)) if tensor.external_data else tensor
        for tensor in model.graph.initializer
        if tensor.name not in replaced or tensor.name in read
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.initializer[:]
    model.graph.initializer.extend(unchanged + constants)
    model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    onnx.save(model, target)
    return len(replaced)


def _shared_constants() -> list[onnx.TensorProto]:
    values: dict[str, NDArray[np.generic]] = {
        "int8/smallest": np.array(_MIN_MAGNITUDE, dtype=np.float32),
        "int8/largest": np.array(_MAX_ACTIVATION, dtype=np.float32),
        "int8/one": np.array(1, dtype=np.float32),
        "int8/zero": np.array(_ZERO, dtype=np.uint8),
        "int8/column": np.array([1], dtype=np.int64),
        "int8/any": np.array([-1], dtype=np.int64),
    }
    return [numpy_helper.from_array(value, name) for name, value in values.items()]


def _activations(x: str) -> list[onnx.NodeProto]:
    """Quantise x (…, d) into x/q (n, d) in uint8 and x/s (n, 1), n being the product of the leading dimensions.

    These are usually batch and tokens, but some architectures have products by position or after the pooling.
    """
    zero = helper.make_tensor("zero", TensorProto.UINT8, [1], [_ZERO])
    return [
        helper.make_node("Shape", [x], [f"{x}/leading"], end=-1),
        helper.make_node("Shape", [x], [f"{x}/width"], start=-1),
        helper.make_node("Concat", ["int8/any", f"{x}/width"], [f"{x}/flat"], axis=0),
        helper.make_node("Reshape", [x, f"{x}/flat"], [f"{x}/rows"]),
        helper.make_node("Abs", [f"{x}/rows"], [f"{x}/abs"]),
        helper.make_node("ReduceMax", [f"{x}/abs"], [f"{x}/max"], axes=[1], keepdims=0),
        helper.make_node("Max", [f"{x}/max", "int8/smallest"], [f"{x}/positive"]),
        helper.make_node("Div", [f"{x}/positive", "int8/largest"], [f"{x}/scale"]),
        helper.make_node("Shape", [f"{x}/scale"], [f"{x}/count"]),
        helper.make_node("ConstantOfShape", [f"{x}/count"], [f"{x}/zeros"], value=zero),
        helper.make_node("QuantizeLinear", [f"{x}/rows", f"{x}/scale", f"{x}/zeros"], [f"{x}/q"], axis=0),
        helper.make_node("Unsqueeze", [f"{x}/scale", "int8/column"], [f"{x}/s"]),
    ]


def _weights(weights: NDArray[np.float32], name: str, store: Store) -> list[onnx.TensorProto]:
    """Quantise W (d, n) into Q in int8 and c (n,), with n as a third constant."""
    scale = (np.maximum(np.abs(weights).max(axis=0), _MIN_MAGNITUDE) / _MAX_WEIGHT).astype(np.float32)
    rounded = np.clip(np.round(weights / scale), -_MAX_WEIGHT, _MAX_WEIGHT).astype(np.int8)
    width = np.array([weights.shape[1]], dtype=np.int64)
    return [store(f"{name}/q", rounded), _in_graph(f"{name}/c", scale), _in_graph(f"{name}/width", width)]


def _product(x: str, w: str, output: str) -> list[onnx.NodeProto]:
    """Multiply the integers, s · (q·Q) · c, in the shape of x·W."""
    integers = [f"{x}/q", f"{w}/q", "int8/one", f"{w}/c", "int8/zero"]
    return [
        helper.make_node("MatMulIntegerToFloat", integers, [f"{output}/channels"], domain=_CONTRIB),
        helper.make_node("Mul", [f"{output}/channels", f"{x}/s"], [f"{output}/scaled"]),
        helper.make_node("Concat", [f"{x}/leading", f"{w}/width"], [f"{output}/shape"], axis=0),
        helper.make_node("Reshape", [f"{output}/scaled", f"{output}/shape"], [output]),
    ]
