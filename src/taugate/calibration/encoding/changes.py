"""The difference between two versions of a corpus: which documents changed, and whose vectors are known already.

A version is known by 64 bytes a document, whether its documents are in a folder or are read once from an engine.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.vectors.similarity import Float32, Vectors

UNKNOWN = -1
# Bytes of a SHA-256 that are kept: of 10⁹ texts, two have the same 16 with a chance of 10⁻²¹.
_BYTES = 16

Digests = NDArray[np.bytes_]


@dataclass(frozen=True, eq=False)
class CorpusDigests:
    """What the N passages of a corpus are recognised by, in their order, (N,) digests each.

    Attributes:
        ids: Of their ids.
        documents: Of the ids of the documents that they belong to.
        contents: Of everything in them, less the id.
        texts: Of what is encoded.
    """

    ids: Digests
    documents: Digests
    contents: Digests
    texts: Digests

    @classmethod
    def of(cls, passages: Iterable[Document]) -> Self:
        """Digest passages, one or more, which are read once."""
        columns = [bytearray() for _ in range(4)]
        for each in passages:
            content = [each.text, each.title, dict(each.metadata), each.parent, each.span]
            parts = (
                each.id.encode(),
                each.document_id.encode(),
                orjson.dumps(content, option=orjson.OPT_SORT_KEYS),
                each.encoded_text.encode(),
            )
            for column, part in zip(columns, parts, strict=True):
                column.extend(_digest(part))
        return cls(*(np.frombuffer(column, dtype=f"S{_BYTES}") for column in columns))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        """Whether a passage or a document has an id."""
        return isinstance(name, str) and bool(_places(self._names, _digests([name]))[0] >= 0)

    def positions(self, names: Collection[str]) -> dict[str, list[int]]:
        """Return where the passages are that have an id or belong to the document with it, ascending, by id.

        Args:
            names: The ids; those that are not there are left out.
        """
        listed = [*names]
        digests = _digests(listed)
        order = np.argsort(digests)
        columns = [_places(digests[order], column) for column in (self.ids, self.documents)]
        found: dict[str, list[int]] = {}
        for position in np.flatnonzero(np.maximum(*columns) >= 0).tolist():
            for place in {int(column[position]) for column in columns} - {UNKNOWN}:
                found.setdefault(listed[order[place]], []).append(position)
        return found

    @cached_property
    def _names(self) -> Digests:
        return np.unique(np.concatenate([self.ids, self.documents]))


@dataclass(frozen=True)
class CorpusChanges:
    """The difference between an old corpus and a new one.

    Attributes:
        added: How many documents. A document is changed where anything of it is, its metadata included.
        changed: How many documents. A document is changed where anything of it is, its metadata included.
        removed: How many documents. A document is changed where anything of it is, its metadata included.
        reordered: Whether the documents that stay come in another order.
        sources: (N,) int64, for each document of the new corpus the position of an old one with the same encoded text,
            UNKNOWN where the text has to be encoded.
        fewer: By position in the old corpus, how many times less often its text appears now.
        more: By position in the new corpus, how many times more often.
    """

    added: int
    changed: int
    removed: int
    reordered: bool
    sources: NDArray[np.int64]
    fewer: dict[int, int]
    more: dict[int, int]

    @classmethod
    def between(cls, old: CorpusDigests, new: CorpusDigests) -> Self:
        """Compare two corpora: a document goes by its id, a vector by the text that it is made of."""
        order = np.argsort(old.ids)
        place = _places(old.ids[order], new.ids)
        kept = place >= 0
        before = order[place[kept]]  # where the documents that stay were
        old_texts, new_texts = _Texts.of(old.texts), _Texts.of(new.texts)
        source = _places(old_texts.distinct, new.texts)
        return cls(
            added=int(np.count_nonzero(~kept)),
            changed=int(np.count_nonzero(old.contents[before] != new.contents[kept])),
            removed=len(old) - len(before),
            reordered=bool((np.diff(before) < 0).any()),
            sources=np.where(source < 0, UNKNOWN, old_texts.first[source]),
            fewer=old_texts.more_often_than(new_texts),
            more=new_texts.more_often_than(old_texts),
        )

    @property
    def nothing(self) -> bool:
        """Whether both corpora hold the same documents in the same order."""
        return not (self.added or self.changed or self.removed or self.reordered)


class KnownRows(NamedTuple):
    """Rows of a shard whose vectors are known: places in it, (r,) int64, and vectors, (r, d) float32."""

    places: NDArray[np.int64]
    vectors: Float32


@dataclass(frozen=True)
class KnownVectors:
    """Vectors that the same encoder gave to texts of an earlier corpus.

    Attributes:
        sources: Of CorpusChanges since then.
        vectors: (M, d), of the earlier corpus, read by position.
    """

    sources: NDArray[np.int64]
    vectors: Vectors

    def __len__(self) -> int:
        """How many of the N documents need not be encoded."""
        return int(np.count_nonzero(self.sources != UNKNOWN))

    def rows(self, first: int, count: int) -> KnownRows | None:
        """Return what is known of a shard, None where nothing is.

        Args:
            first: Position of its first row.
            count: Of rows.
        """
        sources = self.sources[first : first + count]
        places = np.flatnonzero(sources != UNKNOWN)
        return KnownRows(places, self.vectors[sources[places]]) if len(places) else None


@dataclass(frozen=True, eq=False)
class _Texts:
    """The distinct texts of a corpus, ascending by digest.

    Attributes:
        first: Position of each.
        count: How often it appears.
    """

    distinct: Digests
    first: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Digests) -> Self:
        return cls(*np.unique(texts, return_index=True, return_counts=True))

    def more_often_than(self, other: Self) -> dict[int, int]:
        """Return, by first position, how many times more often a text appears than in another corpus."""
        place = _places(other.distinct, self.distinct)
        surplus = self.count - np.where(place < 0, 0, other.count[place])
        more = surplus > 0
        return dict(zip(self.first[more].tolist(), surplus[more].tolist(), strict=True))


def _digest(content: bytes) -> bytes:
    return sha256(content).digest()[:_BYTES]


def _digests(names: Iterable[str]) -> Digests:
    return np.array([_digest(name.encode()) for name in names], dtype=f"S{_BYTES}")


def _places(ascending: Digests, wanted: Digests) -> NDArray[np.int64]:
    """Return where digests are among distinct ascending ones, −1 for those that are not there."""
    if not len(ascending):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    place = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[place] == wanted, place, UNKNOWN)
