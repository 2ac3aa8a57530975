"""An engine that keeps its rows in a dictionary."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from taugate.retrieval.engines.row_store import RowStore


class DictionaryStore(RowStore):
    kind = "dictionary"

    def __init__(self) -> None:
        self.kept: dict[str, dict[int, bytes]] = defaultdict(dict)

    def write(self, collection: str, rows: Mapping[int, bytes]) -> None:
        self.kept[collection].update(rows)

    def read(self, collection: str) -> Mapping[int, bytes]:
        return self.kept.get(collection, {})

    def remove(self, collection: str) -> None:
        self.kept.pop(collection, None)

    def collections(self) -> Iterable[str]:
        return [*self.kept]
