"""Choose the score that decides whether a query is answered: the one by which fewest unanswerable queries are.

Four tenths of the queries, by whole documents, fit the model and choose among the scores; a question that has no answer
is about a document as well, and stays with the others about it. The rest had no say, and certifies (`certify`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.splits import cluster_folds
from taugate.calibration.relevance.model import fit_logistic
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.abstention import MODEL_SIGNALS, SIGNALS, AnswerScore, ScoreName, Signals, signals_of
from taugate.retrieval.policy.background import Float64
from taugate.retrieval.policy.relevance import Logistic
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

# The inverse strength of the ridge penalty on standardised signals. docs/benchmarks/abstention.md has what others gave.
_STRENGTH = 0.3
# Of the queries, to fit and to choose: with a half or more of them the score is hardly better on unseen documents, with
# a quarter worse (docs/benchmarks/abstention.md). As with the cut (calibration/metrics/splits.py), most certify.
_LEARN = 0.4
# With fewer of a kind the standard error of a share is .09 or more, √(.25/30), and nothing can be told apart.
_FEWEST = 30
# Parts of γ at which scores are compared, to take the mean: at γ alone the choice hangs on where a few queries fall.
_NEAR = (0.5, 0.75, 1.0, 1.25, 1.5)
# Resamples of the documents for the standard error of a difference: an error of 1/√(2·200) = 5 % of it.
_RESAMPLES = 200


@dataclass(frozen=True)
class QueryGroup:
    """The n queries of one kind, answerable or unanswerable.

    Attributes:
        texts: n of them.
        vectors: (n, d) float32.
        top: (n, K) results.
        labels: (n,) clusters, numbered jointly with those of the other kind: the same number on both sides is the same
            documents.
    """

    texts: Sequence[str]
    vectors: Float32
    top: TopK
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedCorpus:
    """N documents: vectors (N, d) float32, in memory or not, and texts as they are encoded."""

    vectors: CorpusVectors
    texts: Sequence[str]


@dataclass(frozen=True)
class ScoreComparison:
    """A score that was considered, measured on the queries that choose, none of which it was fitted on.

    Attributes:
        name: Of the score.
        auroc: Probability that an answerable query's is above an unanswerable one's, ties count half.
        answered: Share of the unanswerable queries that are answered at the threshold that refuses γ of the answerable
            ones.
        standard_error: Of that share, by document.
    """

    name: ScoreName
    auroc: float
    answered: float
    standard_error: float


@dataclass(frozen=True)
class ChosenScore:
    """The chosen score, with what it gives to every query.

    Attributes:
        score: As it is served.
        answerable: (n,) and unanswerable: (u,) float32, scores of all queries.
        certify_answerable: Positions of the queries that had no say, ascending.
        certify_unanswerable: Positions of the queries that had no say, ascending.
        candidates: The scores considered, the simplest first.
        curves: Scores of both kinds, of the chosen score and of the best similarity.
    """

    score: AnswerScore
    answerable: Float32
    unanswerable: Float32
    certify_answerable: NDArray[np.int64]
    certify_unanswerable: NDArray[np.int64]
    candidates: list[ScoreComparison]
    curves: Mapping[str, tuple[Float32, Float32]]


@dataclass(frozen=True)
class QueryLabels:
    """Labels of q queries of both kinds.

    Attributes:
        has_answer: (q,) whether it has an answer.
        labels: (q,) its cluster.
        may: (q,) whether it may have a say.
    """

    has_answer: NDArray[np.bool_]
    labels: NDArray[np.int64]
    may: NDArray[np.bool_]


@dataclass(frozen=True)
class LearntScore:
    """The outcome of the choice.

    Attributes:
        name: Of the score.
        model: None unless the score is the model.
        candidates: The scores considered.
        learns: (q,) which queries had a say.
    """

    name: ScoreName
    model: Logistic | None
    candidates: list[ScoreComparison]
    learns: NDArray[np.bool_]


def choose_score(
    answerable: QueryGroup,
    unanswerable: QueryGroup,
    corpus: EncodedCorpus,
    calibration: NDArray[np.int64],
    empty: float,
    seed: int,
) -> ChosenScore:
    """Choose a score on some of the queries, and score all of them.

    With fewer than 30 of a kind to learn from it is the best similarity, which nobody chose, and every query certifies.
    One thread, and a generator of its own, `numpy.random.default_rng([seed, 5])`.

    Args:
        answerable: All queries of each kind.
        unanswerable: All queries of each kind.
        corpus: The documents.
        calibration: Positions of the answerable queries that may have a say.
        empty: γ, the share of answerable queries that may be refused.
        seed: Of the calibration.
    """
    size, k = len(answerable.labels), answerable.top.scores.shape[1]
    labels = np.concatenate([answerable.labels, unanswerable.labels])
    has_answer = np.arange(len(labels)) < size
    may = ~has_answer
    may[calibration] = True
    with threadpool_limits(limits=1):
        signals = Signals.of(k, corpus.vectors, corpus.texts)
        values = np.concatenate(
            [signals.values(SIGNALS, side.texts, side.vectors, side.top) for side in (answerable, unanswerable)]
        )
        learnt = learn_score(values, QueryLabels(has_answer, labels, may), empty, seed)
        score = AnswerScore(learnt.name, signals.needed(learnt.name), learnt.model)
        scores = score.from_values(_columns(values, signals_of(learnt.name)))
    best = values[:, SIGNALS.index("best_similarity")].astype(np.float32)
    certifies = np.flatnonzero(may & ~learnt.learns)
    return ChosenScore(
        score,
        scores[:size],
        scores[size:],
        certifies[certifies < size],
        certifies[certifies >= size] - size,
        learnt.candidates,
        {"best_similarity": (best[:size], best[size:]), learnt.name: (scores[:size], scores[size:])},
    )


def learn_score(values: Float64, queries: QueryLabels, empty: float, seed: int) -> LearntScore:
    """Choose a score from signals that are worked out already, as `choose_score` does.

    Args:
        values: (q, len(SIGNALS)) float64.
        queries: Their labels.
        empty: γ, the share of answerable queries that may be refused.
        seed: Of the calibration.
    """
    rng = np.random.default_rng([seed, 5])
    order, learns = _learning_queries(queries.labels, queries.may, rng)
    has_answer = queries.has_answer
    if min(learns[has_answer].sum(), learns[~has_answer].sum()) < _FEWEST:
        learns[:] = False
    asked = learns if learns.any() else queries.may
    considered: dict[ScoreName, Float64] = {"best_similarity": values[asked, SIGNALS.index("best_similarity")]}
    if learns.any():
        considered = _considered(values[asked], has_answer[asked], order[asked])
    name, candidates = _compare(considered, has_answer[asked], order[asked], empty, rng)
    model = fit_score_model(_columns(values[learns], MODEL_SIGNALS), has_answer[learns]) if name == "model" else None
    return LearntScore(name, model, candidates, learns)


def _learning_queries(
    labels: NDArray[np.int64], may: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Number clusters at random, (q,), and take whole ones to learn from, up to a share of the queries that may."""
    names, places = np.unique(labels, return_inverse=True)
    order: NDArray[np.int64] = rng.permutation(len(names))[places]
    up_to = np.cumsum(np.bincount(order, weights=may))
    return order, may & (up_to <= _LEARN * may.sum())[order]


def _considered(values: Float64, has_answer: NDArray[np.bool_], labels: NDArray[np.int64]) -> dict[ScoreName, Float64]:
    """Score the queries that choose, the simplest score first; the model only where each fold can be left out."""
    names: tuple[ScoreName, ...] = get_args(ScoreName)
    scores: dict[ScoreName, Float64] = {name: values[:, SIGNALS.index(name)] for name in names if name in SIGNALS}
    odds = out_of_fold(_columns(values, MODEL_SIGNALS), has_answer, labels)
    if not np.isnan(odds).any():
        scores["model"] = odds
    return scores


def fit_score_model(values: Float64, answerable: NDArray[np.bool_]) -> Logistic:
    """Fit the model of whether a query has an answer.

    Both kinds weigh the same, however many there are of each: what counts is how they are ordered, and the share of
    unanswerable queries that a team labels says nothing of what users ask. One thread: the same data give the same
    bits.

    Args:
        values: (q, F) float64 signals of queries of both kinds.
        answerable: (q,).
    """
    with threadpool_limits(limits=1):
        return fit_logistic(values, answerable, _STRENGTH, "balanced")


def out_of_fold(values: Float64, answerable: NDArray[np.bool_], labels: NDArray[np.int64]) -> Float64:
    """Return the log-odds of each query, (q,), by a model that has seen no query on its documents.

    Args:
        values: (q, F) float64 signals.
        answerable: (q,).
        labels: (q,) clusters, numbered at random, so that every fifth of them is as good as any. NaN where a fold
            leaves only one kind to learn from.
    """
    odds = np.full(len(values), np.nan)
    for rest, fold in cluster_folds(labels):
        if answerable[rest].any() and not answerable[rest].all():
            odds[fold] = fit_score_model(values[rest], answerable[rest]).log_odds(values[fold])
    return odds


def _compare(
    scores: Mapping[ScoreName, Float64],
    has_answer: NDArray[np.bool_],
    labels: NDArray[np.int64],
    empty: float,
    rng: np.random.Generator,
) -> tuple[ScoreName, list[ScoreComparison]]:
    """Take the simplest score no worse than the best by more than one standard error, nor worse than a simpler one.

    Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd ed., §7.10; the error is that of the
    difference, by resampled documents, as queries on one are answered and refused together. What is compared is the
    share of unanswerable queries answered, averaged over refusals near γ.

    Args:
        scores: (q,) each, the simplest first.
    """
    names, places = np.unique(labels, return_inverse=True)
    drawn = rng.integers(0, len(names), size=(_RESAMPLES, len(names)))
    each_resample = [np.bincount(row, minlength=len(names)).astype(np.float64) for row in drawn]
    counts = np.array([np.ones(len(names)), *each_resample])[:, places]
    both = counts[:, has_answer].any(axis=1) & counts[:, ~has_answer].any(axis=1)
    near = [part * empty for part in _NEAR]
    shares: dict[ScoreName, list[Float64]] = {
        name: _answered(each, has_answer, counts[both], near) for name, each in scores.items()
    }
    at = _NEAR.index(1.0)
    candidates = [
        ScoreComparison(
            name, float(roc_auc_score(has_answer, scores[name])), float(share[at][0]), float(share[at][1:].std())
        )
        for name, share in shares.items()
    ]
    means: dict[ScoreName, Float64] = {name: np.mean(share, axis=0) for name, share in shares.items()}
    best = min(means.values(), key=lambda mean: float(mean[0]))
    lowest = np.minimum.accumulate([float(mean[0]) for mean in means.values()])
    close: list[ScoreName] = [
        name
        for (name, mean), least in zip(means.items(), lowest, strict=True)
        if mean[0] <= least and mean[0] - best[0] <= (mean[1:] - best[1:]).std()
    ]
    return close[0], candidates


def _answered(
    scores: Float64, has_answer: NDArray[np.bool_], counts: Float64, refused: Sequence[float]
) -> list[Float64]:
    """Return shares of unanswerable queries answered, at thresholds that refuse at most so much of the answerable ones.

    Args:
        counts: (r, q), how often each resample has each query, both kinds in each.

    Returns:
        (r,) for each share refused.
    """
    known, others = np.sort(scores[has_answer]), np.sort(scores[~has_answer])
    candidates, first = np.unique(known, return_index=True)
    lost = _below(counts[:, has_answer], scores[has_answer])
    below = _below(counts[:, ~has_answer], scores[~has_answer])
    rows, shares = np.arange(len(counts)), []
    for share in refused:
        most = share * lost[:, -1:] + 1e-9  # of sums of whole numbers
        place = (lost[:, first] <= most).sum(axis=1) - 1
        reached = np.searchsorted(others, candidates[place], side="left")
        shares.append(1 - below[rows, reached] / below[:, -1])
    return shares


def _below(counts: Float64, scores: Float64) -> Float64:
    """Count the queries among the n lowest scores, for n from 0 to all of them, (r, q + 1)."""
    rising = counts[:, np.argsort(scores, kind="stable")]
    return np.concatenate([np.zeros((len(counts), 1)), np.cumsum(rising, axis=1)], axis=1)


def _columns(values: Float64, names: Sequence[str]) -> Float64:
    """Take some of the signals by name, (q, len(names))."""
    return values[:, [SIGNALS.index(name) for name in names]]
