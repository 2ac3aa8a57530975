"""Fold a linear map of the embeddings into an exported encoder, for a model that exists only as a graph.

A model that sentence-transformers can load gets a Dense module instead, which the tracer turns into the same product.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from taugate.errors import EncoderError
from taugate.retrieval.encoder.graph import DATA
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.folders import link_or_copy

SHORTEST = 1e-12  # the length below which torch.nn.functional.normalize treats a vector as zero


def fold_linear_map(source: Path, weight: Float32, bias: Float32, target: Path) -> None:
    """Write a graph with the output (A·u + b) / |A·u + b|, u being the output of the source graph.

    The product is a Gemm, which int8 quantisation leaves alone, as it does for a Dense module.

    Args:
        source: ONNX file to read, with one output, (batch, d) float32.
        weight: A, (e, d) float32.
        bias: b, (e,) float32.
        target: ONNX file to write.

    Raises:
        EncoderError: If the graph has more or less than one output, or reads its weights from a file other than DATA.
    """
    model = onnx.load(source, load_external_data=False)
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    places = {entry.value for entry in entries if entry.key == "location"}
    if not places <= {DATA}:
        raise EncoderError(f"{source}: has its weights in {', '.join(sorted(places))}; move them all to {DATA}")
    if len(model.graph.output) != 1:
        names = ", ".join(output.name for output in model.graph.output)
        raise EncoderError(f"{source}: has the outputs {names}, but an encoder has one; export it with taugate")
    output = model.graph.output[0].name
    # Names must be unique, and an encoder that was folded before already has the first prefix.
    taken = {name for node in model.graph.node for name in node.output}
    prefix = next(prefix for number in range(len(taken) + 1) if not _uses(taken, prefix := f"taugate/map{number}"))
    _rename(model, output, f"{prefix}/input")
    constants: dict[str, NDArray[Any]] = {
        "weight": weight,
        "bias": bias,
        "shortest": np.array(SHORTEST, dtype=np.float32),
        "axes": np.array([-1], dtype=np.int64),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(value, f"{prefix}/{name}") for name, value in constants.items()
    )
    model.graph.node.extend(_nodes(prefix, output))
    model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value = len(bias)
    onnx.save(model, target)
    if places:
        link_or_copy(source.parent / DATA, target.parent / DATA)


def _uses(taken: set[str], prefix: str) -> bool:
    return any(name.startswith(f"{prefix}/") for name in taken)


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    """Rename the graph's output in every node that writes or reads it."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new


def _nodes(prefix: str, output: str) -> Iterator[onnx.NodeProto]:
    """Yield the product and the normalisation."""
    yield helper.make_node(
        "Gemm", [f"{prefix}/input", f"{prefix}/weight", f"{prefix}/bias"], [f"{prefix}/product"], transB=1
    )
    yield helper.make_node("Mul", [f"{prefix}/product", f"{prefix}/product"], [f"{prefix}/squares"])
    yield helper.make_node("ReduceSum", [f"{prefix}/squares", f"{prefix}/axes"], [f"{prefix}/sum"], keepdims=1)
    yield helper.make_node("Sqrt", [f"{prefix}/sum"], [f"{prefix}/length"])
    yield helper.make_node("Max", [f"{prefix}/length", f"{prefix}/shortest"], [f"{prefix}/divisor"])
    yield helper.make_node("Div", [f"{prefix}/product", f"{prefix}/divisor"], [output])
