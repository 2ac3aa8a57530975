"""The weights of an exported graph: in a file of their own if they are large, and in int8.

The weights of a large encoder in a file of their own, beside its graph. An ONNX file is one protobuf message, which may
have 2 GiB, and is held in memory several times while it is written. So PyTorch exports a large model without its
weights, and they are written here one after the other. onnxruntime maps them into memory, and processes that serve the
same release share them.

Write an exported encoder with int8 weights, whose vectors depend on their text alone. onnxruntime's dynamic
quantisation uses one scale for all activations of a batch, so a query's vector depends on the other queries in the
batch. Its static quantisation fixes the scales beforehand and loses a point of accuracy (docs/gate.md). Here each token
has its own scale (Yao et al., ZeroQuant, NeurIPS 2022, §4.1), and so has each output channel of the weights: x·W ≈
s·(q·Q)·c with s = max|x| / 127, q = round(x / s) in 8 bits and Q = round(W / c) in 7. Processors without VNNI add pairs
of products in 16 bits: 2 · 255 · 64 fits, and an eighth bit would overflow. Sums of integers are exact, so a vector
does not depend on the batch, the number of threads or the processor.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from taugate.release.encoder import DATA

if TYPE_CHECKING:
    import torch

# Length in tokens above which a graph computes attention for QUERY_BLOCK queries at a time (torch_model.py): the scores
# of all pairs of so many tokens and twelve heads take 50 MB, and those of a block with 8,192 keys 100 MB.
LONG_TEXT, QUERY_BLOCK = 1024, 256
# Below it, an encoder is one file, whose export takes up to eight times its weights: at most 1 GiB, less than PyTorch
# with its libraries. Models of 12 layers and 384 dimensions, the most used ones, have 127 MiB.
SEPARATE_BYTES = 1 << 27
_ALIGNMENT = 4096  # bytes; onnxruntime maps a tensor into memory if it starts at a page
_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int8): TensorProto.INT8,
}

Store = Callable[[str, NDArray[np.generic]], TensorProto]  # makes a constant of its name and its array
_MIN_MAGNITUDE = 1e-12  # lower limit of a token's largest activation, so that zeros are not divided by zero
_MAX_ACTIVATION, _MAX_WEIGHT = 127, 64
_ZERO = 128  # zero point in uint8; the kernels for uint8 activations are the fast ones
_CONTRIB = "com.microsoft"  # MatMulIntegerToFloat: integer product and channel scales in one pass


def needs_separate_weights(parameters: int) -> bool:
    """Return whether the weights of a model in float32 get a file of their own."""
    return 4 * parameters > SEPARATE_BYTES


def separate_weights(path: Path, weights: Mapping[str, "torch.Tensor"]) -> None:
    """Make the inputs of a graph that are weights constants, stored in the file DATA beside it.

    A weight that the graph transposes is stored transposed, as the tracer does for smaller models.
    """
    model = onnx.load(path)
    graph = model.graph
    stored = {value.name for value in graph.input if value.name in weights}
    transposed = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in stored and weights[node.input[0]].dim() == 2
    }
    nodes = [node for node in graph.node if node.output[0] not in transposed]
    read = {name for node in nodes for name in node.input}
    with (path.parent / DATA).open("wb") as file:
        for name in sorted(read & stored):
            graph.initializer.append(append_weight(file, name, weights[name].detach().numpy()))
        for name in sorted(read & transposed.keys()):
            graph.initializer.append(append_weight(file, name, weights[transposed[name]].detach().numpy().T))
    inputs = [value for value in graph.input if value.name not in stored]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    onnx.save(model, path)


def append_weight(file: BinaryIO, name: str, array: NDArray[np.generic]) -> TensorProto:
    """Append an array to the file DATA, and return the constant that reads it.

    Args:
        array: In float32, int64 or int8, of any shape.
    """
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    start, content = file.tell(), np.ascontiguousarray(array)
    file.write(content.data)
    constant = TensorProto(name=name, data_type=_TYPES[content.dtype], dims=array.shape)
    constant.data_location = TensorProto.EXTERNAL
    facts = {"location": DATA, "offset": start, "length": content.nbytes}
    for key, value in facts.items():
        constant.external_data.add(key=key, value=str(value))
    return constant


def read_weight(constant: TensorProto, folder: Path) -> NDArray[Any]:
    """Return the array of a constant, mapped from the file DATA in `folder` if it is stored there."""
    if not constant.external_data:
        return numpy_helper.to_array(constant)
    offset = int(next(entry.value for entry in constant.external_data if entry.key == "offset"))
    kind = helper.tensor_dtype_to_np_dtype(constant.data_type)
    return np.memmap(folder / DATA, kind, "r", offset, tuple(constant.dims)).view(np.ndarray)


def quantize(source: Path, target: Path) -> int:
    """Write a graph with every product by constant weights in int8; returns the number of tensors replaced.

    Weights in a file of their own are read and written in turn.

    Args:
        source: ONNX file of the graph in float32.
    """
    with ExitStack() as stack:
        store: Store = in_graph
        if (source.parent / DATA).is_file():  # embeddings, which are no products, may be too large for the graph
            store = partial(append_weight, stack.enter_context((target.parent / DATA).open("wb")))
        return _quantize(source, target, store)


def in_graph(name: str, array: NDArray[np.generic]) -> TensorProto:
    """Return a constant with its array in the graph itself."""
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
    return [store(f"{name}/q", rounded), in_graph(f"{name}/c", scale), in_graph(f"{name}/width", width)]


def _product(x: str, w: str, output: str) -> list[onnx.NodeProto]:
    """Multiply the integers, s · (q·Q) · c, in the shape of x·W."""
    integers = [f"{x}/q", f"{w}/q", "int8/one", f"{w}/c", "int8/zero"]
    return [
        helper.make_node("MatMulIntegerToFloat", integers, [f"{output}/channels"], domain=_CONTRIB),
        helper.make_node("Mul", [f"{output}/channels", f"{x}/s"], [f"{output}/scaled"]),
        helper.make_node("Concat", [f"{x}/leading", f"{w}/width"], [f"{output}/shape"], axis=0),
        helper.make_node("Reshape", [f"{output}/scaled", f"{output}/shape"], [output]),
    ]
