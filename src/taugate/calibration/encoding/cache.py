"""A cache of embeddings on disk, so that a second calibration need not compute them again.

A vector depends on its text alone, so a run gives the same bytes with the cache as without it.
"""

import platform
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
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

_TABLE = """
CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, truncated INTEGER, vector BLOB) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class CachedEmbedding:
    """One embedding.

    Attributes:
        vector: (d,) float32.
        truncated: Whether its text was longer than the encoder reads.
    """

    vector: Float32
    truncated: bool


class EmbeddingCache:
    """Embeddings of one encoder, keyed by the SHA-256 of the text with its prompt.

    SQLite survives kill -9 and two calibrations at once. A failure of the cache never ends a calibration: the cache is
    switched off, and `failure` says why.

    Args:
        path: The SQLite file.
        dimension: d, of the vectors.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self._dimension = dimension
        self.failure: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database: sqlite3.Connection | None = sqlite3.connect(path, timeout=30)
            self._database.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            self._give_up(f"{path}: {error}")

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
        try:
            for key in keys:
                if self._database is None:
                    break
                row = self._database.execute("SELECT truncated, vector FROM embedding WHERE key = ?", (key,)).fetchone()
                if row is None or len(row[1]) != 4 * self._dimension:
                    continue
                vector = np.frombuffer(row[1], dtype=np.float32)
                if np.isfinite(vector).all():
                    embeddings[key] = CachedEmbedding(vector, bool(row[0]))
        except sqlite3.Error as error:
            self._give_up(str(error))
        return embeddings

    def put(self, embeddings: Mapping[bytes, CachedEmbedding]) -> None:
        """Add embeddings by key, in one transaction."""
        rows: Iterable[tuple[bytes, bool, bytes]] = (
            (key, embedding.truncated, embedding.vector.tobytes()) for key, embedding in embeddings.items()
        )
        try:
            if self._database:
                with self._database:
                    self._database.executemany("INSERT OR IGNORE INTO embedding VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            self._give_up(str(error))

    def _give_up(self, failure: str) -> None:
        self._database = None
        self.failure = failure


def _processor() -> str:
    """Return the processor's instruction sets, by which onnxruntime chooses its kernels and so the order of sums."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()}"
