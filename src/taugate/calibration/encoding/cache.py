"""A cache of embeddings on disk, so that a second calibration need not compute them again.

A vector depends on its text alone, so a run gives the same bytes with the cache as without it.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np

from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.gpu import onnxruntime_version
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.folders import cache_folder
from taugate.storage.sqlite_cache import SqliteCache


@dataclass(frozen=True, slots=True)
class CachedEmbedding:
    """One embedding.

    Attributes:
        vector: (d,) float32.
        truncated: Whether its text was longer than the encoder reads.
    """

    vector: Float32
    truncated: bool


class EmbeddingCache(SqliteCache):
    """Embeddings of one encoder, keyed by the SHA-256 of the text with its prompt.

    Args:
        path: The SQLite file.
        dimension: d, of the vectors.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        super().__init__(path, "embedding", truncated="INTEGER", vector="BLOB")
        self._dimension = dimension

    @classmethod
    def of(cls, encoder: ExportedEncoder) -> Self:
        """Open the cache of an encoder on this machine: runtime and processor decide the last bits of a vector."""
        machine = sha256(f"{onnxruntime_version()} {processor_path('float32')} {_processor()}".encode()).hexdigest()
        return cls(
            cache_folder() / "embeddings" / f"{encoder.sha256[:32]}-{machine[:12]}.sqlite", encoder.config.dimension
        )

    @staticmethod
    def key(text: str) -> bytes:
        """Key of a text with its prompt."""
        return sha256(text.encode()).digest()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, CachedEmbedding]:
        """Look up `keys`; keys that are not in the cache are left out."""
        embeddings: dict[bytes, CachedEmbedding] = {}
        for key in keys:
            truncated, stored = self.row(key) or (False, b"")
            if isinstance(stored, bytes) and len(stored) == 4 * self._dimension:
                vector = np.frombuffer(stored, dtype=np.float32)
                if np.isfinite(vector).all():
                    embeddings[key] = CachedEmbedding(vector, bool(truncated))
        return embeddings

    def put(self, embeddings: Mapping[bytes, CachedEmbedding]) -> None:
        """Add embeddings by key, in one transaction."""
        self.add((key, embedding.truncated, embedding.vector.tobytes()) for key, embedding in embeddings.items())


def _processor() -> str:
    """Return the processor's instruction sets, by which onnxruntime chooses its kernels and so the order of sums."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()}"
