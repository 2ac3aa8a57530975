"""The weights of a large encoder in a file of their own, beside its graph.

An ONNX file is one protobuf message, which may have 2 GiB, and is held in memory several times while it is written. So
PyTorch exports a large model without its weights, and they are written here one after the other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto

from taugate.retrieval.encoder.graph import DATA

# Below it, an encoder is one file, as it was when releases could have no other.
SEPARATE_BYTES = 1 << 30
_ALIGNMENT = 4096  # bytes; onnxruntime maps a tensor into memory if it starts at a page
_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


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
            graph.initializer.append(_append(file, name, weights[name].detach().numpy()))
        for name in sorted(read & transposed.keys()):
            graph.initializer.append(_append(file, name, weights[transposed[name]].detach().numpy().T))
    inputs = [value for value in graph.input if value.name not in stored]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    onnx.save(model, path)


def _append(file: BinaryIO, name: str, array: NDArray[np.generic]) -> TensorProto:
    """Append an array to the file, and return the constant that reads it."""
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    start, content = file.tell(), np.ascontiguousarray(array)
    file.write(content.data)
    constant = TensorProto(name=name, data_type=_TYPES[content.dtype], dims=array.shape)
    constant.data_location = TensorProto.EXTERNAL
    facts = {"location": DATA, "offset": start, "length": content.nbytes}
    for key, value in facts.items():
        constant.external_data.add(key=key, value=str(value))
    return constant
