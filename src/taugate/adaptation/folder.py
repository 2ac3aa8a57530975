"""The adapted encoder as a folder: the base model, with the map as its last layer.

A model that sentence-transformers loads gets a Dense module. One that is there as an exported graph alone, and so
cannot be trained, has the map folded into its graph. Where documents do not pass the map, the exported base is in a
folder of its own: the same bytes, so that vectors of documents that are in a cache or an index stay valid.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.linear.modules import adapted_model
from taugate.calibration.encoding.source import is_exported
from taugate.calibration.export.linear_layer import fold_linear_map
from taugate.calibration.export.onnx_export import depends_on_company, write_config
from taugate.calibration.export.torch_model import load_model, refuse_unknown_modules
from taugate.errors import InputError
from taugate.registry.writer import copy_encoder
from taugate.retrieval.encoder.encoder import MODEL, TOKENIZER, OnnxEncoder
from taugate.retrieval.release.adaptation import ADAPTATION, DOCUMENTS, AdaptationRecord
from taugate.storage.files import disk_failure, set_mode, sha256_file, write_synced
from taugate.storage.folders import staging_folder


def check_target(target: Path) -> None:
    """Find out, before the work, what would keep the encoder from being written.

    Args:
        target: The folder to be.

    Raises:
        InputError: Where something is there already, or it cannot be made.
    """
    try:
        if target.is_symlink() or target.exists():
            raise InputError(f"{target}: exists already; name another folder with --to, or remove this one")
        parent = next(path for path in target.absolute().parents if path.exists())
        if not parent.is_dir():
            raise InputError(f"{parent}: is a file; name another folder with --to")
        # Permissions alone do not tell: root has all of them, and some file systems take no folder or no long name.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.work-", dir=parent):
            pass
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror or error}); name another folder with --to, or correct the "
            "permissions of its parent"
        ) from error


def write_encoder(
    base: Path, name: str, learned: LinearMap | None, record: AdaptationRecord, target: Path, exported: OnnxEncoder
) -> None:
    """Write the encoder and its record, either both or neither.

    Args:
        base: Folder of the base encoder.
        name: Of the base, for messages.
        learned: The map, None for none.
        record: For adaptation.json.
        target: The folder to make.
        exported: The graph of the base, which goes beside a map that keeps documents.

    Raises:
        EncoderError: Where the base has modules that cannot be served, InputError where the folder cannot be written.
    """
    if learned is not None and is_exported(base):
        write = _folded(base, learned, record)
    else:
        write = _with_dense_layer(base, name, learned)
    try:
        with staging_folder(target.absolute().parent, f".{target.name}-") as staging:
            write(staging)
            if learned is not None and learned.keeps_documents:
                copy_encoder(exported.folder, staging / DOCUMENTS)
            write_synced(staging / ADAPTATION, (record.model_dump_json(indent=2) + "\n").encode())
            set_mode(staging, 0o755)
            staging.rename(target)
    except Exception as error:
        said = disk_failure(error)
        if said is None:
            raise
        raise InputError(
            f"{target}: the encoder cannot be written there ({said}); free some space, or name another folder with --to"
        ) from error


def _with_dense_layer(base: Path, name: str, learned: LinearMap | None) -> Callable[[Path], None]:
    """Return a function that writes the sentence-transformers model with the map as its last layer."""
    base_model = load_model(base, name)
    refuse_unknown_modules(base_model, name)
    model = adapted_model(base_model, learned)

    def write(staging: Path) -> None:
        model.save(str(staging), create_model_card=False)

    return write


def _folded(base: Path, learned: LinearMap, record: AdaptationRecord) -> Callable[[Path], None]:
    """Return what writes an exported encoder with the map in its graph."""
    config = OnnxEncoder.load(base).config

    def write(staging: Path) -> None:
        fold_linear_map(base / MODEL, learned.weight, learned.bias, staging / MODEL)
        shutil.copyfile(base / TOKENIZER, staging / TOKENIZER)
        changed = {"name": f"{config.name}+{record.recipe}", "revision": sha256_file(staging / MODEL)}
        write_config(config.model_copy(update=changed), staging)
        # The product may give a lone text other bits, whatever the base does.
        depends = config.pair_lone_texts or depends_on_company(OnnxEncoder.load(staging))
        write_config(config.model_copy(update=changed | {"pair_lone_texts": depends}), staging)

    return write
