"""Ids in the qrels: each names a passage, or a document with all of its chunks."""

from dataclasses import dataclass, field
from typing import NamedTuple


class JudgedId(NamedTuple):
    """What an id of the qrels stands for.

    position: of the passage, or of the document's first chunk. whole: true where all chunks of the document are meant,
    false where one passage is.
    """

    position: int
    whole: bool


@dataclass(frozen=True)
class CorpusIds:
    """The ids that qrels may name.

    passages: the position of each passage by its `_id`. documents: the position of the first chunk of each document
    that the corpus holds in chunks, by the `parent` of these. Empty where every passage is a whole document.
    """

    passages: dict[str, int] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)

    def find(self, identifier: str) -> JudgedId | None:
        """Return what an id stands for, None for an unknown one. A passage goes before a document of the same id."""
        if identifier in self.passages:
            return JudgedId(self.passages[identifier], whole=False)
        if identifier in self.documents:
            return JudgedId(self.documents[identifier], whole=True)
        return None
