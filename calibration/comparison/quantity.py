"""What a promotion rule may speak of: a mean over queries, by the name that `taugate release diff` and people use."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.release.outcomes import Outcomes


@dataclass(frozen=True)
class Sample:
    """One number of each query, in 0…1.

    values: (n,); query: (n,) which query it is of; labels: (n,) clusters of queries that share a document.
    """

    values: NDArray[np.float64]
    query: NDArray[np.uint64]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)


Reading = Callable[[Outcomes, int], Sample]


def _answerable(value: Callable[[Outcomes, int], NDArray[np.generic]]) -> Reading:
    return lambda each, k: Sample(value(each, k).astype(np.float64), each.query, each.cluster)


def _unanswerable_empty(each: Outcomes, k: int) -> Sample:
    """No document answers them, so that each is a draw of its own."""
    empty = (each.unanswerable_kept == 0).astype(np.float64)
    return Sample(empty, each.unanswerable, np.arange(len(empty)))


# Without more words accuracy and NDCG are those of what users get, at τ. The second argument is K.
QUANTITIES: dict[str, Reading] = {
    "accuracy": _answerable(lambda each, k: each.hit_kept),
    "NDCG": _answerable(lambda each, k: each.ndcg_kept),
    "kept share": _answerable(lambda each, k: each.kept / k),
    "answerable empty": _answerable(lambda each, k: each.kept == 0),
    "unanswerable empty": _unanswerable_empty,
    "accuracy@K": _answerable(lambda each, k: each.hit),
    "NDCG@K": _answerable(lambda each, k: each.ndcg),
}
# As the rows of `taugate release diff` have it.
_ALIASES = {"accuracy@K at τ": "accuracy", "NDCG@K at τ": "NDCG", "results kept": "kept share"}
_NAMES = {name.casefold(): name for name in QUANTITIES} | {name.casefold(): of for name, of in _ALIASES.items()}


def quantity(name: str) -> str | None:
    """The quantity of a name, whatever its case; None where there is none of it."""
    return _NAMES.get(name.casefold())
