"""Vectors that need not be computed again: a cache on disk, and what changed between two versions of a corpus.

A vector depends on its text alone, so a run gives the same bytes with the cache as without it.

The difference between two versions of a corpus: which documents changed, and which vectors can be reused. A version is
represented by 64 bytes per document, so its documents are read only once, from a folder or an engine.
"""

import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, Vectors
from taugate.retrieval.documents.store import Document
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.hardware import onnxruntime_version
from taugate.storage.folders import cache_folder
from taugate.storage.sqlite_cache import SqliteCache

UNKNOWN = -1
# Bytes kept of a SHA-256: among 10⁹ texts, two share the same 16 bytes with probability 10⁻²¹.
_BYTES = 16

Digests = NDArray[np.bytes_]


@dataclass(frozen=True, slots=True)
class CachedEmbedding:
    """One embedding."""

    vector: Float32  # (d,) float32
    truncated: bool  # whether its text was longer than the encoder reads


class EmbeddingCache(SqliteCache):
    """Embeddings of one encoder, keyed by the SHA-256 of the text with its prompt."""

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


@dataclass(frozen=True, eq=False)
class CorpusDigests:
    """Digests of the N passages of a corpus, in corpus order; each array is (N,)."""

    ids: Digests
    documents: Digests  # digests of the ids of the documents that the passages belong to
    contents: Digests
    texts: Digests

    @classmethod
    def of(cls, passages: Iterable[Document]) -> Self:
        """Compute the digests of one or more passages, reading them once."""
        columns = [bytearray() for _ in range(4)]
        for passage in passages:
            content = [passage.text, passage.title, dict(passage.metadata), passage.parent, passage.span]
            parts = (
                passage.id.encode(),
                passage.document_id.encode(),
                orjson.dumps(content, option=orjson.OPT_SORT_KEYS),
                passage.encoded_text.encode(),
            )
            for column, part in zip(columns, parts, strict=True):
                column.extend(_digest(part))
        return cls(*(np.frombuffer(column, dtype=f"S{_BYTES}") for column in columns))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        """Return whether a passage or a document has the id `name`."""
        return isinstance(name, str) and bool(_places(self._names, _digests([name]))[0] >= 0)

    def positions(self, names: Collection[str]) -> dict[str, list[int]]:
        """Return the ascending positions of passages by id; a document's id has those of all its passages."""
        listed = [*names]
        digests = _digests(listed)
        order = np.argsort(digests)
        columns = [_places(digests[order], column) for column in (self.ids, self.documents)]
        positions: dict[str, list[int]] = {}
        for position in np.flatnonzero(np.maximum(*columns) >= 0).tolist():
            for place in {int(column[position]) for column in columns} - {UNKNOWN}:
                positions.setdefault(listed[order[place]], []).append(position)
        return positions

    @cached_property
    def _names(self) -> Digests:
        return np.unique(np.concatenate([self.ids, self.documents]))


@dataclass(frozen=True)
class CorpusChanges:
    """The difference between an old corpus and a new one."""

    added: int
    changed: int
    removed: int
    reordered: bool  # whether documents in both corpora have changed their order
    # (N,) int64, for each document of the new corpus the position of an old one with the same encoded text;
    # UNKNOWN if the text has to be encoded
    sources: NDArray[np.int64]
    missing_copies: dict[int, int]  # by position in the old corpus, how many copies of its text the new corpus lacks
    extra_copies: dict[int, int]  # by position in the new corpus, how many copies of its text the old corpus lacks

    @classmethod
    def between(cls, old: CorpusDigests, new: CorpusDigests) -> Self:
        """Compare two corpora: documents by id, vectors by the encoded text."""
        order = np.argsort(old.ids)
        place = _places(old.ids[order], new.ids)
        kept = place >= 0
        before = order[place[kept]]  # old positions of the documents in both corpora
        old_texts, new_texts = _Texts.of(old.texts), _Texts.of(new.texts)
        source = _places(old_texts.distinct, new.texts)
        return cls(
            added=int(np.count_nonzero(~kept)),
            changed=int(np.count_nonzero(old.contents[before] != new.contents[kept])),
            removed=len(old) - len(before),
            reordered=bool((np.diff(before) < 0).any()),
            sources=np.where(source < 0, UNKNOWN, old_texts.first[source]),
            missing_copies=old_texts.more_often_than(new_texts),
            extra_copies=new_texts.more_often_than(old_texts),
        )

    @property
    def is_empty(self) -> bool:
        """Whether both corpora hold the same documents in the same order."""
        return not (self.added or self.changed or self.removed or self.reordered)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of documents by what happened to them."""
        return {"added": self.added, "changed": self.changed, "removed": self.removed}


class ReusableRows(NamedTuple):
    """Vectors that need not be encoded for a shard: places in the shard, (r,) int64, and vectors, (r, d) float32."""

    places: NDArray[np.int64]
    vectors: Float32


@dataclass(frozen=True)
class ReusableVectors:
    """Vectors of an earlier corpus by the same encoder."""

    sources: NDArray[np.int64]  # (N,) int64, as in CorpusChanges
    vectors: Vectors  # (M, d), vectors of the earlier corpus, read by position

    def __len__(self) -> int:
        """Number of the N documents that need not be encoded."""
        return int(np.count_nonzero(self.sources != UNKNOWN))

    def rows(self, first: int, count: int) -> ReusableRows | None:
        """Return the reusable vectors of a shard; None if there are none.

        Args:
            first: Position of the shard's first row.
        """
        sources = self.sources[first : first + count]
        places = np.flatnonzero(sources != UNKNOWN)
        return ReusableRows(places, self.vectors[sources[places]]) if len(places) else None


@dataclass(frozen=True, eq=False)
class _Texts:
    """The distinct texts of a corpus, ascending by digest."""

    distinct: Digests
    first: NDArray[np.int64]  # first position of each text
    count: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Digests) -> Self:
        return cls(*np.unique(texts, return_index=True, return_counts=True))

    def more_often_than(self, other: Self) -> dict[int, int]:
        """Return, by first position, how many more copies of a text there are than in another corpus."""
        place = _places(other.distinct, self.distinct)
        surplus = self.count - np.where(place < 0, 0, other.count[place])
        surplus_texts = surplus > 0
        return dict(zip(self.first[surplus_texts].tolist(), surplus[surplus_texts].tolist(), strict=True))


def _digest(content: bytes) -> bytes:
    return sha256(content).digest()[:_BYTES]


def _digests(names: Iterable[str]) -> Digests:
    return np.array([_digest(name.encode()) for name in names], dtype=f"S{_BYTES}")


def _places(ascending: Digests, digests: Digests) -> NDArray[np.int64]:
    """Return the positions of digests among distinct ascending ones, UNKNOWN for those that are missing."""
    if not len(ascending):
        return np.full(len(digests), UNKNOWN, dtype=np.int64)
    place = np.minimum(np.searchsorted(ascending, digests), len(ascending) - 1)
    return np.where(ascending[place] == digests, place, UNKNOWN)
