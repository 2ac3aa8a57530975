"""`taugate` with a fault that tells of documents outside a key's filter by the time of a reply. Not for people.

PLANTED_DELAY: microseconds that a search takes longer if the nearest of all documents is hidden; PLANTED_CACHE: that
the vectors of all keys are cached as one.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from taugate.cli import main as cli
from taugate.retrieval.index.passages import Observe
from taugate.retrieval.lists import Listed, SearchGroup
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.service.cache.cache import CacheKeys


def main() -> int:
    """Plant what the environment says."""
    if microseconds := float(os.environ.get("PLANTED_DELAY", "0")):
        _delay(microseconds / 1e6)
    if "PLANTED_CACHE" in os.environ:
        own = CacheKeys.vector
        CacheKeys.vector = lambda self, query: own(self, replace(query, permitted=()))  # type: ignore[method-assign]
    return cli.main()


def _delay(seconds: float) -> None:
    search = Retriever._search

    def delayed(self: Retriever, compared: QueryVectors, group: SearchGroup, observe: Observe) -> Iterator[Listed]:
        if group.scope:
            (nearest,) = self.index.search(compared[:1], 1).positions[0]
            until = time.perf_counter() + seconds * (not self.metadata.where(group.scope)[nearest])
            while time.perf_counter() < until:
                pass
        return search(self, compared, group, observe)

    Retriever._search = delayed  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
