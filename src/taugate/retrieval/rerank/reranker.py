"""The interface of rerankers: score the pairs of a query and several texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from taugate.errors import RerankerUnavailable
from taugate.retrieval.vectors.similarity import Float32

RerankerKind = Literal["cross-encoder", "endpoint"]


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair of a query and a document with its score at calibration, to check a reranker."""

    query: str
    document: str
    score: float


class Reranker(Protocol):
    """Scores how well texts answer a query. `score` may be called by several threads."""

    @property
    def parallel(self) -> int:
        """How many queries are scored at the same time; 1 if one query already uses all processors."""
        ...

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts.

        Args:
            query: Text of the query.
            texts: The n texts.
            deadline: Time of `time.monotonic` after which nobody needs the scores; None to take as long as necessary.

        Returns:
            (n,) float32 finite scores, higher is better.

        Raises:
            RerankerUnavailable: If there are no scores, or not in time.
        """
        ...

    def forget(self) -> None:
        """Forget scores that it remembers."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


def checked_scores(scores: Float32, texts: int, name: str) -> Float32:
    """Return scores if there is a finite one for each text.

    Args:
        scores: (n,) float32.
        texts: Number of texts.
        name: What scored them, for the message.

    Raises:
        RerankerUnavailable: If there are others.
    """
    if scores.shape != (texts,) or not np.isfinite(scores).all():
        raise RerankerUnavailable(f"{name}: does not give {texts} texts one finite score each; use another model")
    return scores
