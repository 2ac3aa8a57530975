"""Finds the reranker that a command requests: an endpoint, or a model, which is exported once.

A model of late interaction then encodes the documents of the data set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np

from taugate.calibration.encoding.source import export_versions, model_folder, source_digest, write_cached
from taugate.calibration.export.model_folder import gives_token_vectors
from taugate.calibration.progress import Job
from taugate.errors import EncoderError
from taugate.registry.catalog import current_id
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.release.layout import RERANKER_FOLDER
from taugate.retrieval.rerank import cross_encoder, token_encoder
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.endpoint import RerankerEndpoint, reranker_endpoint
from taugate.retrieval.rerank.late_interaction import (
    TOKEN_VECTORS,
    LateInteraction,
    TokenVectors,
    write_token_vectors,
)
from taugate.retrieval.rerank.reranker import Reranker, RerankerKind, TextReranker
from taugate.retrieval.rerank.token_encoder import TokenEncoder
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder

# Raise it when export/cross_encoder.py or export/token_encoder.py writes other bytes for the same model.
_EXPORT_VERSION = 1
_ENDPOINT, _AUTO = "endpoint", "auto"
_BLOCK = 1024  # documents encoded together: 80 MB of vectors of 150 tokens in float32


@dataclass(frozen=True)
class RequestedReranker:
    """A reranker to try.

    Attributes:
        model: The model, or the endpoint.
        endpoint_model: Name of the model in requests to an endpoint; None without an endpoint, or if they name none.
        gated: Whether it is used only if the gate accepts it.
    """

    model: CrossEncoder | TokenEncoder | RerankerEndpoint
    endpoint_model: str | None
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
            return None if folder is None else cls(_loaded(exported_reranker(str(folder))), None, True)
        kind, _, model = named.partition(":")
        if kind == _ENDPOINT:
            return cls(reranker_endpoint(model or None), model or None, bool(automatic))
        return cls(_loaded(exported_reranker(named)), None, bool(automatic))

    @property
    def kind(self) -> RerankerKind:
        """Kind of the reranker."""
        if isinstance(self.model, RerankerEndpoint):
            return "endpoint"
        return "cross-encoder" if isinstance(self.model, CrossEncoder) else "late-interaction"

    @property
    def name(self) -> str:
        """Name of the model."""
        if isinstance(self.model, RerankerEndpoint):
            return self.endpoint_model or _ENDPOINT
        return self.model.config.name

    def scale(self, scores: Float32) -> Literal["similarity", "logit"]:
        """Return what its scores are, given those of the candidates: of an endpoint only these are known."""
        if isinstance(self.model, TokenEncoder):
            return "similarity"  # the mean of cosines
        if isinstance(self.model, CrossEncoder):
            return "similarity" if self.model.config.activation == "sigmoid" else "logit"
        return "similarity" if np.min(scores) >= 0 and np.max(scores) <= 1 else "logit"

    def over(self, documents: Documents, spool: Path, job: Job) -> Reranker:
        """Return the reranker of the documents of a data set.

        Args:
            documents: The documents by position.
            spool: Folder for their token vectors, in the file TOKEN_VECTORS.
            job: Shows the progress.
        """
        if not isinstance(self.model, TokenEncoder):
            return TextReranker(self.model, documents)
        write_token_vectors(spool / TOKEN_VECTORS, _token_vectors(self.model, documents, job))
        return LateInteraction(self.model, TokenVectors(spool / TOKEN_VECTORS, self.model.config.dimension))

    def files(self, spool: Path) -> list[Path]:
        """Return the files that a release needs of it, with those that `over` wrote."""
        if isinstance(self.model, RerankerEndpoint):
            return []
        is_late = isinstance(self.model, TokenEncoder)
        names = token_encoder.FILES if is_late else cross_encoder.FILES
        stored = [self.model.folder / name for name in names if (self.model.folder / name).exists()]
        return [*stored, spool / TOKEN_VECTORS] if is_late else stored


def _token_vectors(model: TokenEncoder, documents: Documents, job: Job) -> Iterator[Float32]:
    """Yield the token vectors of one document after the other."""
    with job.task("encoding tokens", len(documents)) as task:
        for start in range(0, len(documents), _BLOCK):
            block = documents.at(np.arange(start, min(start + _BLOCK, len(documents))))
            yield from model.encode([document.encoded_text for document in block], "document")
            task.advance(len(block))


def _loaded(folder: Path) -> CrossEncoder | TokenEncoder:
    return TokenEncoder(folder) if (folder / token_encoder.CONFIG).is_file() else CrossEncoder(folder)


def _is_exported(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (cross_encoder.CONFIG, token_encoder.CONFIG))


def exported_reranker(name_or_path: str) -> Path:
    """Return the folder of an exported reranker, which is exported once and cached.

    Args:
        name_or_path: Name of a model, or a folder: of an exported reranker, of a CrossEncoder or MultiVectorEncoder of
            sentence-transformers, or of a model of late interaction by PyLate or ColBERT.

    Raises:
        EncoderError: If the model does not exist, or cannot be exported.
    """
    path = Path(name_or_path)
    if _is_exported(path):
        return path
    try:
        folder = model_folder(name_or_path)
        revision = source_digest(folder)
    except EncoderError as error:
        raise EncoderError(f"--rerank {name_or_path}: {error}") from error
    name = path.resolve().name if path.is_dir() else name_or_path
    late = gives_token_vectors(folder)
    key = ["late-interaction" if late else "cross-encoder", _EXPORT_VERSION, name, revision, export_versions()]
    cached = cache_folder() / "rerankers" / sha256_json(key)[:32]
    if not cached.is_dir():
        from taugate.calibration.export.cross_encoder import export_cross_encoder  # imports PyTorch
        from taugate.calibration.export.token_encoder import export_token_encoder

        export = export_token_encoder if late else export_cross_encoder
        write_cached(cached, lambda staging: export(folder, name, revision, staging))
    return cached


def _own_reranker(encoder: Path, releases: Path) -> Path | None:
    """Return the folder of the reranker beside an encoder, else that of the current release; None without either."""
    if (encoder / RERANKER_FOLDER).is_dir():
        return encoder / RERANKER_FOLDER
    current = current_id(releases)
    folder = None if current is None else releases / current / RERANKER_FOLDER
    return folder if folder is not None and _is_exported(folder) else None
