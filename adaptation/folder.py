"""The adapted encoder as a folder: the base model of sentence-transformers, with the map as its last layer."""

import contextlib
import io
import os
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from taugate.adaptation.linear.map import LinearMap
from taugate.calibration.export.torch_model import kind, load_model, refuse_unknown_modules
from taugate.errors import EncoderError, InputError
from taugate.retrieval.release.adaptation import ADAPTATION, AdaptationRecord
from taugate.storage.files import write_synced
from taugate.storage.folders import publish, staging_folder


def check_target(target: Path) -> None:
    """Find out, before the work, what would keep the encoder from being written.

    target: the folder to be. Raises InputError where something is there already, or it cannot be made.
    """
    if target.is_symlink() or target.exists():
        raise InputError(f"{target}: exists already; name another folder with --to, or remove this one")
    parent = next(path for path in target.absolute().parents if path.exists())
    if not parent.is_dir():
        raise InputError(f"{parent}: is a file; name another folder with --to")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{parent}: is not writable; name another folder with --to, or correct its permissions")


def write_encoder(base: Path, name: str, learned: LinearMap, record: AdaptationRecord, target: Path) -> None:
    """Write the model and its record, either both or neither.

    The map is a Dense module with a bias, between the normalisation of the base and one of its own: it was learned from
    unit vectors.

    base: folder of the base model; name: of the base, for messages; learned: the map; record: for adaptation.json;
    target: the folder to make. Raises EncoderError where the base has modules that cannot be served, InputError where
    the folder cannot be written.
    """
    model = load_model(base, name)
    refuse_unknown_modules(model, name)
    dimension = len(learned.bias)
    if model.get_embedding_dimension() != dimension:
        raise EncoderError(
            f"encoder {name!r}: has {model.get_embedding_dimension()} dimensions, of which it gives {dimension}; adapt "
            "it without truncate_dim"
        )
    if kind(model[-1]) != "Normalize":
        _append(model, Normalize())
    _append(model, _dense(learned))
    _append(model, Normalize())
    try:
        with staging_folder(target.absolute().parent, f".{target.name}-") as staging:
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar over one small file
                model.save(str(staging), create_model_card=False)
            write_synced(staging / ADAPTATION, (record.model_dump_json(indent=2) + "\n").encode())
            staging.chmod(0o755)
            publish(staging, target)
    except OSError as error:
        raise InputError(
            f"{target}: the encoder cannot be written there ({error.strerror or error}); free some space, or name "
            "another folder with --to"
        ) from error


def _append(model: SentenceTransformer, module: torch.nn.Module) -> None:
    model.add_module(str(len(model)), module)


def _dense(learned: LinearMap) -> Dense:
    dimension = len(learned.bias)
    return Dense(
        dimension,
        dimension,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(learned.weight),
        init_bias=torch.from_numpy(learned.bias),
    )
