"""The two encoders of the chunk study: the product's own, and the same weights in PyTorch for a machine with a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class StudyEncoder:
    """What turns texts into vectors.

    Attributes:
        place: What runs it, in words.
        embed: Takes n texts and their role, and returns (n, d) float32 unit vectors.
    """

    place: str
    embed: Callable[[Sequence[str], Role], Float32]


def product_encoder() -> StudyEncoder:
    """Load the encoder that `taugate calibrate` runs, with its cache of embeddings."""
    encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)

    def embed(texts: Sequence[str], role: Role) -> Float32:
        return encode(encoder, texts, len(texts), role, cache, Stopwatch()).vectors

    return StudyEncoder("ONNX on a CPU", embed)


def torch_encoder(folder: Path, device: str) -> StudyEncoder:
    """Load the same weights in PyTorch, in float32; equal texts are encoded once.

    Args:
        folder: Of the sentence-transformers model.
        device: Of PyTorch, such as cuda.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device=device)
    known: dict[str, Float32] = {}

    def embed(texts: Sequence[str], _role: Role) -> Float32:  # this encoder has no prompts, which roles would choose
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            vectors = model.encode(new, batch_size=512, normalize_embeddings=True, show_progress_bar=False)
            known.update(zip(new, np.asarray(vectors, dtype=np.float32), strict=True))
        return np.stack([known[text] for text in texts])

    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    return StudyEncoder(f"PyTorch on {name}", embed)
