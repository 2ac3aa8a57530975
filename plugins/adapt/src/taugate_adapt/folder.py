"""The adapted encoder as a folder: the base model, with the map as its last layer.

Fold a linear map of the embeddings into an exported encoder, for a model that exists only as a graph. A model that
sentence-transformers can load gets a Dense module instead, which the tracer turns into the same product.

A model that sentence-transformers loads gets a Dense module. An exported graph, which cannot be trained, has the map
folded into the graph. If documents do not pass the map, the exported base is copied into a separate folder with the
same bytes, so that cached or indexed vectors of documents remain valid.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from taugate.calibration.encoding.source import is_exported
from taugate.calibration.export.model_folder import depends_on_company, write_config
from taugate.calibration.export.torch_model import load_model, refuse_unknown_modules
from taugate.errors import EncoderError, InputError
from taugate.policy.arrays import Float32
from taugate.release.adaptation import ADAPTATION, DOCUMENTS, AdaptationRecord
from taugate.release.encoder import DATA, MODEL, TOKENIZER
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.folders import EncoderFolder
from taugate.storage.files import disk_failure, set_mode, sha256_file, write_synced
from taugate.storage.folders import link_or_copy, staging_folder
from taugate_adapt.adapter import adapted_model
from taugate_adapt.linear import LinearMap

SHORTEST = 1e-12  # the length below which torch.nn.functional.normalize treats a vector as zero


def fold_linear_map(source: Path, weight: Float32, bias: Float32, target: Path) -> None:
    """Write a graph with the output (A·u + b) / |A·u + b|, u being the output of the source graph.

    The product is a Gemm, which int8 quantisation leaves alone, as it does for a Dense module.

    Args:
        source: ONNX file to read, with one output, (batch, d) float32.
        weight: A, (e, d) float32.
        bias: b, (e,) float32.
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


def check_target(target: Path) -> None:
    """Check before the work that the encoder can be written."""
    try:
        if target.is_symlink() or target.exists():
            raise InputError(f"{target}: exists already; name another folder with --to, or remove this one")
        parent = next(path for path in target.absolute().parents if path.exists())
        if not parent.is_dir():
            raise InputError(f"{parent}: is a file; name another folder with --to")
        # Permissions are not enough: root has all of them, and some file systems accept no folder or no long name.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.work-", dir=parent):
            pass
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror or error}); name another folder with --to, or correct the "
            "permissions of its parent"
        ) from error


def write_encoder(
    base: Path, name: str, learned: LinearMap | None, record: AdaptationRecord, target: Path, exported: ExportedEncoder
) -> None:
    """Write the encoder and its record, either both or neither.

    Args:
        learned: The map, None without a map.
        exported: Graph of the base, which is copied if the map leaves documents unchanged.
    """
    if learned is not None and is_exported(base):
        write = _folded(base, learned, record)
    else:
        write = _with_dense_layer(base, name, learned)

    def write_all(staging: Path) -> None:
        write(staging)
        if learned is not None and learned.keeps_documents:
            EncoderFolder(staging / DOCUMENTS).write(exported.folder)
        write_synced(staging / ADAPTATION, (record.model_dump_json(indent=2) + "\n").encode())

    write_folder(target, write_all)


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Create a folder atomically: with all of its files, or not at all."""
    try:
        with staging_folder(target.absolute().parent, f".{target.name}-") as staging:
            write(staging)
            set_mode(staging, 0o755)
            staging.rename(target)
    except Exception as error:
        reason = disk_failure(error)
        if reason is None:
            raise
        raise InputError(
            f"{target}: the encoder cannot be written there ({reason}); free some space or "
            "name another folder with --to"
        ) from error


def _with_dense_layer(base: Path, name: str, learned: LinearMap | None) -> Callable[[Path], None]:
    """Return a function that writes the sentence-transformers model with the map as its last layer."""
    base_model = load_model(base, name)
    refuse_unknown_modules(base_model, name)
    model = adapted_model(base_model, learned)
    model.similarity_fn_name = "cosine"  # by which it was learned and accepted, whatever the base declares

    def write(staging: Path) -> None:
        model.save(str(staging), create_model_card=False)

    return write


def _folded(base: Path, learned: LinearMap, record: AdaptationRecord) -> Callable[[Path], None]:
    """Return a function that writes an exported encoder with the map in its graph."""
    config = load_encoder(base).config

    def write(staging: Path) -> None:
        fold_linear_map(base / MODEL, learned.weight, learned.bias, staging / MODEL)
        shutil.copyfile(base / TOKENIZER, staging / TOKENIZER)
        changed = {"name": f"{config.name}+{record.recipe}", "revision": sha256_file(staging / MODEL)}
        write_config(config.model_copy(update=changed), staging)
        # The added product may make the bits of a text depend on its batch, even if the base does not.
        depends = config.pair_lone_texts or depends_on_company(load_encoder(staging))
        write_config(config.model_copy(update=changed | {"pair_lone_texts": depends}), staging)

    return write
