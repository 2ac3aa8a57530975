"""Finds the reranker that a command requests: a cross-encoder, which is exported once, or an endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Self

import numpy as np

from taugate.calibration.encoding.precisions import MAX_CHARS, CheaperPrecision
from taugate.calibration.encoding.source import export_versions, model_folder, source_digest, write_cached
from taugate.errors import EncoderError
from taugate.registry.catalog import current_id
from taugate.retrieval.encoder.bert import WEIGHTS, processor_path
from taugate.retrieval.release.layout import RERANKER_FOLDER
from taugate.retrieval.rerank.cross_encoder import CONFIG, TOKENIZER, CrossEncoder
from taugate.retrieval.rerank.endpoint import reranker_endpoint
from taugate.retrieval.rerank.reranker import Reranker
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder, link_or_copy
from taugate.storage.tensors import write_tensors

_EXPORT_VERSION = 1  # raise it when export/cross_encoder.py writes other bytes for the same model
_CHEAPER_VERSION = 1  # raise it when `cheaper_reranker` writes other bytes for the same model
_ENDPOINT, _AUTO = "endpoint", "auto"


@dataclass(frozen=True)
class RequestedReranker:
    """A reranker to try.

    Attributes:
        reranker: The reranker.
        model: Name of the model in requests to an endpoint; None for a cross-encoder, or if requests name none.
        gated: Whether it is used only if the gate accepts it.
    """

    reranker: Reranker
    model: str | None
    gated: bool

    @classmethod
    def find(cls, choice: str, encoder: str, releases: Path) -> Self | None:
        """Find a reranker by the value of --rerank.

        Args:
            choice: `auto`, `auto:MODEL` or MODEL, which is a folder, a name on the hub, `endpoint` or `endpoint:NAME`.
            encoder: Name or path of the encoder.
            releases: The directory of releases.

        Returns:
            None if `auto` finds neither a reranker in the encoder's folder nor one in the current release.

        Raises:
            InputError: If no endpoint is configured.
            EncoderError: If the model does not exist, or cannot be exported.
        """
        automatic, _, named = choice.partition(":") if choice.startswith(f"{_AUTO}:") else ("", "", choice)
        if choice == _AUTO:
            folder = _own_reranker(Path(encoder), releases)
            return None if folder is None else cls(CrossEncoder(exported_reranker(str(folder))), None, True)
        kind, _, model = named.partition(":")
        if kind == _ENDPOINT:
            return cls(reranker_endpoint(model or None), model or None, bool(automatic))
        return cls(CrossEncoder(exported_reranker(named)), None, bool(automatic))

    @property
    def kind(self) -> Literal["cross-encoder", "endpoint"]:
        """Kind of the reranker."""
        return "cross-encoder" if isinstance(self.reranker, CrossEncoder) else "endpoint"

    @property
    def name(self) -> str:
        """Name of the model."""
        if isinstance(self.reranker, CrossEncoder):
            return self.reranker.config.name
        return self.model or _ENDPOINT

    def scale(self, scores: Float32) -> Literal["similarity", "logit"]:
        """Return what its scores are, given those of the candidates: of an endpoint only these are known."""
        if isinstance(self.reranker, CrossEncoder):
            return "similarity" if self.reranker.config.activation == "sigmoid" else "logit"
        return "similarity" if np.min(scores) >= 0 and np.max(scores) <= 1 else "logit"


def exported_reranker(name_or_path: str) -> Path:
    """Return the folder of an exported cross-encoder, which is exported once and cached.

    Args:
        name_or_path: Name of a model, a folder of sentence-transformers, or the folder of an exported cross-encoder.

    Raises:
        EncoderError: If the model does not exist, or cannot be exported.
    """
    path = Path(name_or_path)
    if (path / CONFIG).is_file():
        return path
    try:
        folder = model_folder(name_or_path)
        revision = source_digest(folder)
    except EncoderError as error:
        raise EncoderError(f"--rerank {name_or_path}: {error}") from error
    name = path.resolve().name if path.is_dir() else name_or_path
    key = ["cross-encoder", _EXPORT_VERSION, name, revision, export_versions()]
    cached = cache_folder() / "rerankers" / sha256_json(key)[:32]
    if not cached.is_dir():
        from taugate.calibration.export.cross_encoder import export_cross_encoder  # imports PyTorch

        write_cached(cached, lambda staging: export_cross_encoder(folder, name, revision, staging))
    return cached


def cheaper_reranker(reranker: CrossEncoder, precision: CheaperPrecision, texts: Sequence[str]) -> CrossEncoder:
    """Return a BERT-like cross-encoder in another precision for the kernel, which is made once and cached.

    Args:
        reranker: The cross-encoder in float32.
        precision: Precision of the weights.
        texts: Documents of the user, by which int8 weights are chosen: the beginning of each is a query, paired with
            the document and with the next one.

    Raises:
        EncoderError: If it is not BERT-like, or this machine has no kernel or would be slow.
    """
    name = reranker.config.name
    if processor_path(precision) is None:
        raise EncoderError(f"{name}: {precision} needs a processor with AVX2, and an installation with a compiler")
    key = ["cross-encoder", _CHEAPER_VERSION, precision, reranker.sha256, version("onnx"), *texts]
    cached = cache_folder() / "rerankers" / sha256_json(key)[:32]
    if not cached.is_dir():
        from taugate.calibration.export.pair_bert import find_pair_bert  # imports PyTorch

        found = find_pair_bert(reranker)
        if found is None:
            raise EncoderError(f"{name}: {precision} needs a BERT-like model with one layer between it and its score")
        beginnings = [text[:MAX_CHARS] for text in texts]
        pairs = [*zip(beginnings, texts, strict=True), *zip(beginnings, [*texts[1:], *texts[:1]], strict=True)]
        ids = [found.ids(reranker, *pair) for pair in pairs]
        arrays = found.bert.in_int8(ids) if precision == "int8" else found.bert.in_bfloat16()
        config = reranker.config.model_copy(update={"precision": precision})

        def fill(staging: Path) -> None:
            write_tensors(staging / WEIGHTS, arrays | found.head)
            link_or_copy(reranker.folder / TOKENIZER, staging / TOKENIZER)
            (staging / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")

        write_cached(cached, fill)
    return CrossEncoder(cached)


def _own_reranker(encoder: Path, releases: Path) -> Path | None:
    """Return the folder of the reranker beside an encoder, else that of the current release; None without either."""
    if (encoder / RERANKER_FOLDER).is_dir():
        return encoder / RERANKER_FOLDER
    current = current_id(releases)
    folder = None if current is None else releases / current / RERANKER_FOLDER
    return folder if folder is not None and (folder / CONFIG).is_file() else None
