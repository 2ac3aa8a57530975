"""Makes an exported encoder cheaper: int8 or bfloat16 for the kernel, or int8 as a graph. The result is cached."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from taugate.calibration.encoding.encoder_cache import write_cached
from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import WEIGHTS, processor_path
from taugate.retrieval.encoder.encoder import CONFIG, ExportedEncoder, Runtime, read_config
from taugate.retrieval.encoder.graph import MODEL
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.encoder.tokenizer import TOKENIZER
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder, link_or_copy
from taugate.storage.tensors import write_tensors

_VERSION = 6  # raise it when export/int8.py or export/bert.py writes other bytes for the same encoder
CheaperPrecision = Literal["int8", "bfloat16"]
MAX_CHARS = 120  # of a document that stands for a query: as long as a long one
_PROBES = ["threshold", "What is the warranty period for a new roof?"]  # of two lengths, so that shapes are dynamic


def cheaper_encoder(folder: Path, precision: CheaperPrecision, texts: Sequence[str]) -> Path:
    """Return the folder of an encoder in another precision.

    A BERT-like model is written for the kernel, if this machine can run it. Any other model in int8 is a graph.

    Args:
        folder: Folder of the float32 encoder.
        precision: Precision of the weights.
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
    from taugate.calibration.export.int8 import quantize

    config = read_config(folder)
    name = config.name
    runtime: Runtime = "kernel"
    if supported and _write_for_kernel(folder, precision, ids, staging / WEIGHTS):
        pass
    elif precision == "bfloat16":
        reason = "a BERT-like model" if supported else "a processor with AVX2, and an installation with a compiler"
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
