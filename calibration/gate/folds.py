"""What a projection does to queries that it was not fitted on: k-fold cross-validation (paper, Appendix B)."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.gate.gate import Outcome
from taugate.calibration.gate.pca import fit_pca, retained
from taugate.calibration.gate.trial import Trial

FOLDS = 5  # fits on 80 % of the queries, which is nearer to all of them than the two thirds of the paper's 3 folds

Positions = NDArray[np.int64]


def cross_validated(
    trial: Trial, retentions: Sequence[float], rng: np.random.Generator, folds: int = FOLDS
) -> list[Outcome]:
    """The outcome at each retention: every query is answered by a PCA fitted on the other folds' queries.

    Raises ValueError with fewer queries than folds.
    """
    count, dimension = trial.vectors.shape
    found = [Outcome(np.empty(count), np.empty(count)) for _ in retentions]
    for rest, fold in _folds(count, folds, rng):
        pca = fit_pca(trial.vectors[rest])
        asked = [trial.queries[position] for position in fold.tolist()]
        for each, retention in zip(found, retentions, strict=True):
            projection = pca.projection.first(retained(retention, dimension, pca.rank))
            vectors, documents = projection.apply(trial.vectors[fold]), projection.apply(trial.documents)
            of_fold = Trial(asked, vectors, documents, trial.k).outcome()
            each.accuracy[fold], each.ndcg[fold] = of_fold.accuracy, of_fold.ndcg
    return found


def _folds(count: int, folds: int, rng: np.random.Generator) -> Iterator[tuple[Positions, Positions]]:
    """The rest and the fold, of a random partition."""
    if count < folds:
        raise ValueError(f"{count} queries make no {folds} folds")
    order = rng.permutation(count)
    for number in range(folds):
        yield np.sort(order[np.arange(count) % folds != number]), np.sort(order[number::folds])
