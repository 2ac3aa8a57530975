"""The adapted encoder as a folder: the base model, with the map as its last layer.

A model that sentence-transformers loads gets a Dense module. An exported graph, which cannot be trained, has the map
folded into the graph. If documents do not pass the map, the exported base is copied into a separate folder with the
same bytes, so that cached or indexed vectors of documents remain valid.
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
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.encoder.tokenizer import TOKENIZER
from taugate.retrieval.release.adaptation import ADAPTATION, DOCUMENTS, AdaptationRecord
from taugate.retrieval.release.encoders import EncoderFolder
from taugate.storage.files import disk_failure, set_mode, sha256_file, write_synced
from taugate.storage.folders import staging_folder


def check_target(target: Path) -> None:
    """Check before the work that the encoder can be written.

    Args:
        target: Folder to create.

    Raises:
        InputError: If the folder exists already or cannot be created.
    """
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
        base: Folder of the base encoder.
        name: Name of the base, for messages.
        learned: The map, None without a map.
        record: Record for adaptation.json.
        target: Folder to create.
        exported: Graph of the base, which is copied if the map leaves documents unchanged.

    Raises:
        EncoderError: If the base has modules that cannot be served.
        InputError: If the folder cannot be written.
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
    """Create a folder atomically: with all of its files, or not at all.

    Args:
        target: The folder.
        write: Writes its files into an empty folder.

    Raises:
        InputError: If the folder cannot be written.
    """
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
