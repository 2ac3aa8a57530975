"""Write an exported encoder with int8 weights, whose vectors depend on their text alone.

onnxruntime's own dynamic quantisation takes one scale for all activations of a batch, so that a query's vector depends
on the queries beside it; its static one fixes the scales beforehand and loses a point of accuracy (docs/gate.md). Here
each token has its own scale (Yao et al., ZeroQuant, NeurIPS 2022, §4.1), and each output channel of the weights, too:
x·W ≈ s·(q·Q)·c with s = max|x| / 127, q = round(x / s) in 8 bits and Q = round(W / c) in 7: processors without VNNI add
products in pairs of 16 bits, 2 · 255 · 64 fits, and what an eighth bit would add they would lose. The sums are of
integers, thus exact: neither batch nor threads show, nor the processor.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_SMALLEST = 1e-12  # of a token's largest activation: one that is all zeros must not be divided by zero
_LARGEST, _MAX_WEIGHT = 127, 64
_ZERO = 128  # what 0 is in uint8: the kernels for uint8 activations are the fast ones
_CONTRIB = "com.microsoft"  # MatMulIntegerToFloat: integer product and channel scales in one pass


def quantize(source: Path, target: Path) -> int:
    """Write a graph with every product by constant weights in int8, and return how many there are.

    Args:
        source: ONNX file to read.
        target: ONNX file to write.
    """
    model = onnx.load(source)
    weights = {each.name: each for each in model.graph.initializer}
    nodes, constants = list(_shared_nodes()), _shared_constants()
    quantized: set[str] = set()
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            nodes.append(node)
            continue
        x, w = node.input
        if x not in quantized:  # queries, keys and values are products of the same activations
            nodes += _activations(x)
        if w not in quantized:
            constants += _weights(numpy_helper.to_array(weights[w]), w)
        quantized |= {x, w}
        nodes += _product(x, w, node.output[0])
    replaced = quantized & set(weights)
    kept = [each for each in model.graph.initializer if each.name not in replaced]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept + constants)
    model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    onnx.save(model, target)
    return len(replaced)


def _shared_constants() -> list[onnx.TensorProto]:
    values: dict[str, NDArray[np.generic]] = {
        "int8/smallest": np.array(_SMALLEST, dtype=np.float32),
        "int8/largest": np.array(_LARGEST, dtype=np.float32),
        "int8/one": np.array(1, dtype=np.float32),
        "int8/zero": np.array(_ZERO, dtype=np.uint8),
        "int8/column": np.array([1], dtype=np.int64),
        "int8/any": np.array([-1], dtype=np.int64),
    }
    return [numpy_helper.from_array(value, name) for name, value in values.items()]


def _shared_nodes() -> Iterator[onnx.NodeProto]:
    """Yield the nodes that all products share: batch and tokens of every activation are those of the input."""
    yield helper.make_node("Shape", ["input_ids"], ["int8/batch_tokens"])


def _activations(x: str) -> list[onnx.NodeProto]:
    """Quantise x (batch, tokens, d) into x/q (batch · tokens, d) in uint8 and x/s (batch · tokens, 1)."""
    zero = helper.make_tensor("zero", TensorProto.UINT8, [1], [_ZERO])
    return [
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


def _weights(weights: NDArray[np.float32], name: str) -> list[onnx.TensorProto]:
    """Quantise W (d, n) into Q in int8 and c (n,), beside n."""
    scale = (np.maximum(np.abs(weights).max(axis=0), _SMALLEST) / _MAX_WEIGHT).astype(np.float32)
    rounded = np.clip(np.round(weights / scale), -_MAX_WEIGHT, _MAX_WEIGHT).astype(np.int8)
    width = np.array([weights.shape[1]], dtype=np.int64)
    pairs = ((rounded, "q"), (scale, "c"), (width, "width"))
    return [numpy_helper.from_array(array, f"{name}/{suffix}") for array, suffix in pairs]


def _product(x: str, w: str, output: str) -> list[onnx.NodeProto]:
    """Multiply the integers, s · (q·Q) · c, in the shape of x·W."""
    integers = [f"{x}/q", f"{w}/q", "int8/one", f"{w}/c", "int8/zero"]
    return [
        helper.make_node("MatMulIntegerToFloat", integers, [f"{output}/channels"], domain=_CONTRIB),
        helper.make_node("Mul", [f"{output}/channels", f"{x}/s"], [f"{output}/scaled"]),
        helper.make_node("Concat", ["int8/batch_tokens", f"{w}/width"], [f"{output}/shape"], axis=0),
        helper.make_node("Reshape", [f"{output}/scaled", f"{output}/shape"], [output]),
    ]
