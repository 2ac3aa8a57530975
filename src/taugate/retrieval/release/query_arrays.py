"""Arrays of a release about its labelled queries: similarities for drift detection, and outcomes for comparisons."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors, write_tensors

_OF_PROBABILITY = {"relevance", "correct_relevance"}  # arrays of Reference for the policy `probability` only
_OF_COMPONENTS = {"components"}  # of a run with component scores
_OUTCOME_TYPES = {  # of the arrays of Outcomes
    "query": np.uint64,
    "cluster": np.int64,
    "hit": np.bool_,
    "hit_kept": np.bool_,
    "ndcg": np.float64,
    "ndcg_kept": np.float64,
    "kept": np.int64,
    "unanswerable": np.uint64,
    "unanswerable_kept": np.int64,
}


@dataclass(frozen=True)
class Reference:
    """Similarities of q calibration queries with their top-K, correct and random documents; live traffic is compared.

    Attributes:
        top: (q, K) float32 S_topK, best first.
        correct: (q,) float32 S_corr.
        random: (q,) float32 S_rand; (0,) if no document but the results could be scored.
        kept: (q,) int64 numbers of the K results that the policy keeps.
        correct_kept: (q,) bool, whether these include the correct document, so that a user can have seen it.
        relevance: (q, K) float32 probabilities that the top-K are relevant; only for the policy `probability`, and None
            in releases of versions without it.
        correct_relevance: (q,) float32 highest relevance of a relevant document in the top-K, 0 if there is none; only
            present with `relevance`.
        components: (q, C) float32 mean scores of the C components among the top-K; None without any.
    """

    top: Float32
    correct: Float32
    random: Float32
    kept: NDArray[np.int64]
    correct_kept: NDArray[np.bool_]
    relevance: Float32 | None = None
    correct_relevance: Float32 | None = None
    components: Float32 | None = None

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def component_means(self) -> Float32:
        """Mean scores of the components, (q, C) float32; C = 0 without any."""
        return np.empty((len(self), 0), dtype=np.float32) if self.components is None else self.components

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        write_tensors(path, {name: array for name, array in arrays.items() if array is not None})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file that `save` wrote.

        Raises:
            ReleaseError: If it holds anything else.
        """
        arrays = read_tensors(path)
        required = {field.name for field in fields(cls)} - _OF_PROBABILITY - _OF_COMPONENTS
        present = {*arrays} - _OF_COMPONENTS
        if present not in (required, required | _OF_PROBABILITY) or not _is_valid_reference(cls(**arrays)):
            raise ReleaseError(f"{path}: does not hold the similarities of calibration queries; calibrate again")
        return cls(**arrays)


def _is_valid_reference(read: Reference) -> bool:
    """Return whether shapes and types are as written and all numbers finite."""
    if read.top.ndim != 2 or not read.top.size:
        return False
    queries, k = read.top.shape
    similarities = (read.top, read.correct, read.random, read.component_means)
    probabilities = ((read.relevance, (queries, k)), (read.correct_relevance, (queries,)))
    return bool(
        read.random.shape in {(queries,), (0,)}
        and read.component_means.shape[:-1] == (queries,)
        and read.correct.shape == read.kept.shape == read.correct_kept.shape == (queries,)
        and all(array.dtype == np.float32 and np.isfinite(array).all() for array in similarities)
        and read.kept.dtype == np.int64
        and read.correct_kept.dtype == np.bool_
        and ((read.kept >= 0) & (read.kept <= k)).all()
        and all(
            array is None
            or (array.shape == shape and array.dtype == np.float32 and ((array >= 0) & (array <= 1)).all())
            for array, shape in probabilities
        )
    )


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of q answerable queries, the held-out ones if there are any, and of u unanswerable ones.

    Promotion compares them with the outcomes of a later release.

    Attributes:
        query: (q,) uint64, the first 64 bits of the SHA-256 of the text, to match queries of two releases.
        cluster: (q,) int64, equal for queries that share a relevant document.
        hit: (q,) bool, whether the top-K holds a relevant document.
        hit_kept: (q,) bool, whether the kept results hold a relevant document.
        ndcg: (q,) float64, NDCG@K of the top-K.
        ndcg_kept: (q,) float64, NDCG@K of the kept results.
        kept: (q,) int64, number of kept results.
        unanswerable: (u,) uint64, like `query`.
        unanswerable_kept: (u,) int64, like `kept`.
    """

    query: NDArray[np.uint64]
    cluster: NDArray[np.int64]
    hit: NDArray[np.bool_]
    hit_kept: NDArray[np.bool_]
    ndcg: NDArray[np.float64]
    ndcg_kept: NDArray[np.float64]
    kept: NDArray[np.int64]
    unanswerable: NDArray[np.uint64]
    unanswerable_kept: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file."""
        write_tensors(path, {name: getattr(self, name) for name in _OUTCOME_TYPES})

    @classmethod
    def load(cls, path: Path, k: int) -> Self:
        """Read the file that `save` wrote, for queries with at most k results.

        Raises:
            ReleaseError: If it holds anything else.
        """
        arrays = read_tensors(path)
        if {*arrays} != {*_OUTCOME_TYPES} or not _are_valid_outcomes(cls(**arrays), k):
            raise ReleaseError(f"{path}: does not hold the outcomes of calibration queries; calibrate again")
        return cls(**arrays)


def _are_valid_outcomes(read: Outcomes, k: int) -> bool:
    """Return whether shapes and types are as written and the numbers possible."""
    if read.query.ndim != 1 or not read.query.size or read.unanswerable.ndim != 1:
        return False
    for name, kind in _OUTCOME_TYPES.items():
        array, rows = getattr(read, name), read.unanswerable if name.startswith("unanswerable") else read.query
        if array.dtype != kind or array.shape != rows.shape:
            return False
    return bool(
        all(((share >= 0) & (share <= 1 + 1e-9)).all() for share in (read.ndcg, read.ndcg_kept))
        and all(((kept >= 0) & (kept <= k)).all() for kept in (read.kept, read.unanswerable_kept))
        and read.cluster.min() >= 0
    )
