"""The difference between two versions of a corpus: which documents changed, and whose vectors are known already."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Documents

UNKNOWN = -1


class _Digest(NamedTuple):
    """What a document is recognised by: its id, all of its content, and the text that is encoded."""

    id: str
    content: bytes
    text: bytes


@dataclass(frozen=True)
class CorpusChanges:
    """The difference between an old corpus and a new one.

    added, changed, removed: how many documents. A document is changed where anything of it is, its metadata included.
    reordered: whether the documents that stay come in another order. sources: (N,) int64, for each document of the new
    corpus the position of an old one with the same encoded text, UNKNOWN where the text has to be encoded. fewer: by
    position in the old corpus, how many times less often its text appears now. more: by position in the new corpus, how
    many times more often.
    """

    added: int
    changed: int
    removed: int
    reordered: bool
    sources: NDArray[np.int64]
    fewer: dict[int, int]
    more: dict[int, int]

    @classmethod
    def between(cls, old: Documents, new: Documents) -> Self:
        """Compare two corpora: a document goes by its id, a vector by the text that it is made of."""
        before, after = [*_digests(old)], [*_digests(new)]
        contents = {each.id: each.content for each in before}
        kept = {each.id for each in after if each.id in contents}
        in_old_order = [each.id for each in before if each.id in kept]
        in_new_order = [each.id for each in after if each.id in kept]
        old_places, new_places = _first_places(before), _first_places(after)
        surplus = Counter(each.text for each in after)
        surplus.subtract(Counter(each.text for each in before))
        return cls(
            added=len(after) - len(kept),
            changed=sum(contents.get(each.id, each.content) != each.content for each in after),
            removed=len(before) - len(kept),
            reordered=in_old_order != in_new_order,
            sources=np.array([old_places.get(each.text, UNKNOWN) for each in after], dtype=np.int64),
            fewer={old_places[text]: -count for text, count in surplus.items() if count < 0},
            more={new_places[text]: count for text, count in surplus.items() if count > 0},
        )

    @property
    def nothing(self) -> bool:
        """Whether both corpora hold the same documents in the same order."""
        return not (self.added or self.changed or self.removed or self.reordered)


def _digests(documents: Documents) -> Iterator[_Digest]:
    for each in documents:
        record = [each.text, each.title, dict(each.metadata), each.parent, each.span]
        content = sha256(orjson.dumps(record, option=orjson.OPT_SORT_KEYS)).digest()
        yield _Digest(each.id, content, sha256(each.encoded_text.encode()).digest())


def _first_places(digests: list[_Digest]) -> dict[bytes, int]:
    """Return the first position of each text."""
    places: dict[bytes, int] = {}
    for position, each in enumerate(digests):
        places.setdefault(each.text, position)
    return places
