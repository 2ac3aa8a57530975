"""Files of equal content: one is imported, and names the others, so that a search does not return a text twice."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Set
from typing import BinaryIO

import orjson

from taugate.ingestion.importers.documents import ImportedDocument
from taugate.retrieval.documents.store import MAX_TAGS

ALSO = "also"
"""Metadata field with the paths of the copies."""


class Copies:
    """Finds files whose documents have the same titles, texts and metadata, except path and day of the last change.

    Attributes:
        imported: Ids of documents of the previous corpus.
        judged: Ids of documents and chunks that judgements name.
    """

    def __init__(self, imported: Collection[str], judged: Set[str]) -> None:
        self._imported = imported
        self._judged = judged | {name.rpartition("#")[0].rstrip("#") for name in judged}
        self._digests: dict[str, hashlib._Hash] = {}
        self._ids: dict[str, list[str]] = {}

    def add(self, path: str, document: ImportedDocument) -> None:
        """Add a document of a file.

        Args:
            path: Path of the file.
            document: The document, with its id in the corpus.
        """
        content = document.content
        said = [content.key, content.title, content.text, dict(content.metadata)]
        self._digests.setdefault(path, hashlib.sha256()).update(orjson.dumps(said))
        self._ids.setdefault(path, []).append(document.id)

    def found(self) -> dict[str, list[str]]:
        """Return the paths of copies that are not imported, by the path of the file that is.

        Files with judged documents are imported. If there is none, it is a file that was imported before, else the
        first one. So an id remains as long as its file does.
        """
        groups: dict[bytes, list[str]] = {}
        for path, digest in self._digests.items():
            groups.setdefault(digest.digest(), []).append(path)
        found = {}
        for paths in groups.values():
            judged = [path for path in paths if not self._judged.isdisjoint(self._ids[path])]
            earlier = [path for path in paths if self._ids[path][0] in self._imported]
            kept = judged or [*earlier, *paths][:1]
            if copies := [path for path in paths if path not in kept]:
                found[kept[0]] = copies
        return found

    def corpus(self, lines: BinaryIO, found: Mapping[str, list[str]]) -> Iterator[tuple[str, bytes]]:
        """Yield each line of the corpus with the id of its document, without those of copies.

        Args:
            lines: The lines of all documents.
            found: As returned by `found`.
        """
        also = {name: copies[:MAX_TAGS] for path, copies in found.items() for name in self._ids[path]}
        left_out = {name for copies in found.values() for path in copies for name in self._ids[path]}
        for line in lines:
            record = orjson.loads(line)
            name = record.get("parent") or record["_id"]
            if name in also:
                record["metadata"][ALSO] = also[name]
                yield name, orjson.dumps(record) + b"\n"
            elif name not in left_out:
                yield name, line
