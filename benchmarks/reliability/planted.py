"""`taugate` with a fault that tells of documents outside a key's filter by the time of a reply. Not for people.

PLANTED_DELAY: microseconds that a search takes longer if the nearest of all documents is hidden; PLANTED_CACHE: that
the vectors of all keys are cached as one.
"""

import os
import sys
import time
from dataclasses import replace

from taugate.cli import main as cli
from taugate.policy.arrays import QueryVectors
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.index.top_k import Observe, TopK, unobserved
from taugate.retrieval.retriever import LocalPassages
from taugate.service.pipeline.reply import CacheKeys


def main() -> int:
    """Plant what the environment says."""
    if microseconds := float(os.environ.get("PLANTED_DELAY", "0")):
        _delay(microseconds / 1e6)
    if "PLANTED_CACHE" in os.environ:
        own = CacheKeys.vector
        CacheKeys.vector = lambda self, query: own(self, replace(query, permitted=()))  # type: ignore[method-assign]
    return cli.main()


def _delay(seconds: float) -> None:
    find = LocalPassages.find

    def delayed(
        self: LocalPassages, queries: QueryVectors, k: int, query_filter: Filter, observe: Observe = unobserved
    ) -> TopK:
        if query_filter:
            (nearest,) = self.index.search(queries[:1], 1).positions[0]
            until = time.perf_counter() + seconds * (not self.metadata.where(query_filter)[nearest])
            while time.perf_counter() < until:
                pass
        return find(self, queries, k, query_filter, observe)

    LocalPassages.find = delayed  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
