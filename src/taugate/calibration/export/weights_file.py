"""The weights of a large encoder in a file of their own, beside its graph.

An ONNX file is one protobuf message, which may have 2 GiB, and is held in memory several times while it is written. So
PyTorch exports a large model without its weights, and they are written here one after the other. onnxruntime maps them
into memory, and processes that serve the same release share them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from taugate.retrieval.encoder.graph import DATA

# Below it, an encoder is one file, whose export takes up to eight times its weights: at most 1 GiB, less than PyTorch
# with its libraries. Models of 12 layers and 384 dimensions, the most used ones, have 127 MiB.
SEPARATE_BYTES = 1 << 27
_ALIGNMENT = 4096  # bytes; onnxruntime maps a tensor into memory if it starts at a page
_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int8): TensorProto.INT8,
}


def needs_separate_weights(parameters: int) -> bool:
    """Return whether the weights of a model in float32 get a file of their own."""
    return 4 * parameters > SEPARATE_BYTES


def separate_weights(path: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Make the inputs of a graph that are weights constants, stored in the file DATA beside it.

    A weight that the graph transposes is stored transposed, as the tracer does for smaller models.

    Args:
        path: ONNX file without weights, which is replaced.
        weights: The weights by the names of inputs; others are ignored.

    Raises:
        OSError: If a file cannot be written.
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
        file: The file.
        name: Name of the constant.
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
