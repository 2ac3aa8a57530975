"""Names of what is cached: everything that changes an answer, and nothing of a query that could be read back."""

import hashlib
from dataclasses import fields
from operator import attrgetter

from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Query

# Of what the values look like: another number, and nothing that an older version wrote is read.
_SCHEMA = 4

_every_field = attrgetter(*(field.name for field in fields(Query)))  # so that a new one cannot be forgotten here


class Keys:
    """Keys of one release and encoder: `taugate:<schema>:<release>:<precision>:<kind>:<hash>`.

    A release never changes, so that nothing of it ever has to be removed from a cache but for want of room.
    """

    def __init__(self, release: Release) -> None:
        self._prefix = f"taugate:{_SCHEMA}:{release.manifest.release_id}:{release.precision}"

    def vector(self, query: Query) -> str:
        """Of a query's vector, for those alone who may see the same: others could time whether it was asked for."""
        return self._key("vector", (query.text, query.permitted))

    def found(self, query: Query, depth: int) -> str:
        """Of the documents that a search of that depth found, whatever is made of them."""
        return self._key("found", (query.text, depth, query.filter, query.permitted))

    def reply(self, query: Query, *, include_text: bool) -> str:
        """Of all that is answered to a query but the id of the answer."""
        return self._key("reply", (*_every_field(query), include_text))

    def _key(self, kind: str, asked: object) -> str:
        return f"{self._prefix}:{kind}:{hashlib.sha256(repr(asked).encode()).hexdigest()}"
