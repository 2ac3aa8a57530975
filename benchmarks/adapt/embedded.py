"""Embeddings of texts, through the project's own cache."""

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.vectors.similarity import Float32


def embed(encoder: str, texts: list[str], role: Role) -> Float32:
    """Encode texts; returns (n, d) float32 of unit length.

    Args:
        encoder: A name or a folder.
        texts: n of them.
        role: Query or document.
    """
    model = OnnxEncoder.load(exported_encoder(encoder))
    cache = EmbeddingCache.for_encoder(model.sha256, model.config.dimension)
    return encode(model, texts, len(texts), role, cache, Stopwatch()).vectors
