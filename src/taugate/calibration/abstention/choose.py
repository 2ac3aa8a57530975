"""Chooses the score that decides whether a query is answered: the one by which fewest unanswerable queries are.

Four tenths of the queries, by whole documents, fit the model and choose among the scores. A question without an answer
is about a document as well, and is kept with the other queries about it. The remaining queries certify (`certify`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.splits import cluster_folds
from taugate.calibration.relevance.model import fit_logistic
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.abstention import MODEL_SIGNALS, AnswerScore, ScoreName, Signals, signals_of
from taugate.retrieval.policy.background import Float64, mean_and_covariance
from taugate.retrieval.policy.relevance import Logistic
from taugate.retrieval.policy.word_match import DocumentWords
from taugate.retrieval.release.records import ScoreCandidate
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

# Inverse strength of the ridge penalty on standardised signals; docs/benchmarks/abstention.md compares other values.
_STRENGTH = 0.3
# Share of the queries to fit and to choose: with a half or more the score is hardly better on unseen documents, with a
# quarter it is worse (docs/benchmarks/abstention.md). As with the cut (calibration/metrics/splits.py), most certify.
_LEARN = 0.4
# With fewer queries of a kind the standard error of a share is .09 or more, √(.25/30), too large to compare scores.
_MIN_OF_KIND = 30
# Multiples of γ at which scores are compared; the mean is used, because at γ alone the choice depends on few queries.
_NEAR = (0.5, 0.75, 1.0, 1.25, 1.5)
# Resamples of the documents for the standard error of a difference: an error of 1/√(2·200) = 5 % of it.
_RESAMPLES = 200


@dataclass(frozen=True)
class QueryGroup:
    """The n queries of one kind, answerable or unanswerable.

    Attributes:
        texts: n texts.
        vectors: (n, d) float32.
        top: (n, K) results.
        clusters: (n,) clusters, numbered jointly for both kinds: a number means the same documents in both.
    """

    texts: Sequence[str]
    vectors: QueryVectors
    top: TopK
    clusters: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedCorpus:
    """N documents: (N, d) float32 vectors, in memory or not, and the words of the encoded texts."""

    vectors: CorpusVectors
    words: DocumentWords

    def signals(self, k: int) -> Signals:
        """Prepare all signals of a score from the first k results of a query."""
        return Signals(k, mean_and_covariance(self.vectors), self.words)


@dataclass(frozen=True)
class SignalValues:
    """The s signals of q queries.

    Attributes:
        names: Names of the signals.
        values: (q, s) float64.
    """

    names: tuple[str, ...]
    values: Float64

    def column(self, name: str) -> Float64:
        """Return one signal, (q,)."""
        return self.values[:, self.names.index(name)]

    def columns(self, names: Sequence[str]) -> Float64:
        """Return some of the signals, (q, len(names))."""
        return self.values[:, [self.names.index(name) for name in names]]

    def take(self, rows: NDArray[np.bool_]) -> Self:
        """Return the signals of the queries in a mask."""
        return type(self)(self.names, self.values[rows])


@dataclass(frozen=True)
class ChosenScore:
    """The chosen score with its values for all queries.

    Attributes:
        score: Score for serving.
        answerable: (n,) float32 scores of the answerable queries.
        unanswerable: (u,) float32 scores of the unanswerable queries.
        certify_answerable: Positions of the certifying answerable queries, ascending.
        certify_unanswerable: Positions of the certifying unanswerable queries, ascending.
        candidates: Compared scores, the simplest first.
        curves: Scores of both kinds, of the chosen score and of the best similarity.
    """

    score: AnswerScore
    answerable: Float32
    unanswerable: Float32
    certify_answerable: NDArray[np.int64]
    certify_unanswerable: NDArray[np.int64]
    candidates: list[ScoreCandidate]
    curves: Mapping[str, tuple[Float32, Float32]]


def choose_score(
    answerable: QueryGroup,
    unanswerable: QueryGroup,
    corpus: EncodedCorpus | None,
    calibration: NDArray[np.int64],
    empty: float,
    seed: int,
) -> ChosenScore:
    """Choose a score on some of the queries, and score all of them.

    With fewer than 30 of a kind to learn from, it is the best similarity without a choice, and every query certifies.
    One thread, and the separate generator `numpy.random.default_rng([seed, 5])`.

    Args:
        answerable: All answerable queries.
        unanswerable: All unanswerable queries.
        corpus: The documents; None if only the scores of results are known.
        calibration: Positions of the answerable queries that may choose or certify.
        empty: γ, the share of answerable queries that may be refused.
        seed: Seed of the calibration.
    """
    size, k = len(answerable.clusters), answerable.top.scores.shape[1]
    clusters = np.concatenate([answerable.clusters, unanswerable.clusters])
    has_answer = np.arange(len(clusters)) < size
    eligible = ~has_answer
    eligible[calibration] = True
    with threadpool_limits(limits=1):
        signals = Signals(k) if corpus is None else corpus.signals(k)
        names = signals.available
        values = SignalValues(
            names,
            np.concatenate(
                [signals.values(names, group.texts, group.vectors, group.top) for group in (answerable, unanswerable)]
            ),
        )
        name, model, candidates, learns = _learn(values, has_answer, clusters, eligible, empty, seed)
        score = AnswerScore(name, signals.needed(name), model)
        scores = score.from_values(values.columns(signals_of(name)))
    best = values.column("best_similarity").astype(np.float32)
    certifies = np.flatnonzero(eligible & ~learns)
    return ChosenScore(
        score,
        scores[:size],
        scores[size:],
        certifies[certifies < size],
        certifies[certifies >= size] - size,
        candidates,
        {"best_similarity": (best[:size], best[size:]), name: (scores[:size], scores[size:])},
    )


def _learn(
    values: SignalValues,
    has_answer: NDArray[np.bool_],
    clusters: NDArray[np.int64],
    eligible: NDArray[np.bool_],
    empty: float,
    seed: int,
) -> tuple[ScoreName, Logistic | None, list[ScoreCandidate], NDArray[np.bool_]]:
    """Choose a score by cross-validation.

    Args:
        values: Signals of q queries.
        has_answer: (q,) whether the query has an answer.
        clusters: (q,) cluster of each query.
        eligible: (q,) whether the query may choose or certify.
        empty: γ, the share of answerable queries that may be refused.
        seed: Seed of the calibration.

    Returns:
        The chosen score; its model, None unless the score is the model; the compared scores; and a mask of the queries
        that fitted and chose, (q,).
    """
    rng = np.random.default_rng([seed, 5])
    order, learns = _learning_queries(clusters, eligible, rng)
    if min(learns[has_answer].sum(), learns[~has_answer].sum()) < _MIN_OF_KIND:
        learns[:] = False
    choosing = learns if learns.any() else eligible
    considered: dict[ScoreName, Float64] = {"best_similarity": values.take(choosing).column("best_similarity")}
    if learns.any():
        considered = _considered(values.take(choosing), has_answer[choosing], order[choosing])
    name, candidates = _compare(considered, has_answer[choosing], order[choosing], empty, rng)
    model = None
    if name == "model":
        model = fit_score_model(values.take(learns).columns(MODEL_SIGNALS), has_answer[learns])
    return name, model, candidates, learns


def _learning_queries(
    clusters: NDArray[np.int64], eligible: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Number clusters at random, (q,), and take whole ones to learn from, up to a share of the eligible queries."""
    names, places = np.unique(clusters, return_inverse=True)
    order: NDArray[np.int64] = rng.permutation(len(names))[places]
    up_to = np.cumsum(np.bincount(order, weights=eligible))
    return order, eligible & (up_to <= _LEARN * eligible.sum())[order]


def _considered(
    values: SignalValues, has_answer: NDArray[np.bool_], clusters: NDArray[np.int64]
) -> dict[ScoreName, Float64]:
    """Score the choosing queries, the simplest score first; the model only if each fold can be left out."""
    names: tuple[ScoreName, ...] = get_args(ScoreName)
    scores: dict[ScoreName, Float64] = {name: values.column(name) for name in names if name in values.names}
    if not {*MODEL_SIGNALS} <= {*values.names}:
        return scores
    odds = out_of_fold(values.columns(MODEL_SIGNALS), has_answer, clusters)
    if not np.isnan(odds).any():
        scores["model"] = odds
    return scores


def fit_score_model(values: Float64, answerable: NDArray[np.bool_]) -> Logistic:
    """Fit the model of whether a query has an answer.

    Both kinds have the same weight, because only the order matters and the share of unanswerable queries among the
    labelled ones differs from that among users' queries. One thread makes the same data give the same bits.

    Args:
        values: (q, F) float64 signals of queries of both kinds.
        answerable: (q,) whether the query has an answer.
    """
    with threadpool_limits(limits=1):
        return fit_logistic(values, answerable, _STRENGTH, "balanced")


def out_of_fold(values: Float64, answerable: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Float64:
    """Return the log-odds of each query, (q,), by a model that has seen no query on its documents.

    NaN if a fold leaves only one kind to learn from.

    Args:
        values: (q, F) float64 signals.
        answerable: (q,) whether the query has an answer.
        clusters: (q,) clusters, numbered at random, so that every fifth cluster is a random sample.
    """
    odds = np.full(len(values), np.nan)
    for fitting, fold in cluster_folds(clusters):
        if answerable[fitting].any() and not answerable[fitting].all():
            odds[fold] = fit_score_model(values[fitting], answerable[fitting]).log_odds(values[fold])
    return odds


def _compare(
    scores: Mapping[ScoreName, Float64],
    has_answer: NDArray[np.bool_],
    clusters: NDArray[np.int64],
    empty: float,
    rng: np.random.Generator,
) -> tuple[ScoreName, list[ScoreCandidate]]:
    """Take the simplest score that is within one standard error of the best and no worse than any simpler one.

    Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd ed., §7.10. The error is that of the
    difference, by resampled documents, because queries on one document are answered and refused together. The compared
    figure is the share of unanswerable queries answered, averaged over refusals near γ.

    Args:
        scores: (q,) values of each score, the simplest score first.
        has_answer: (q,) whether the query has an answer.
        clusters: (q,) cluster of each query.
        empty: γ, the share of answerable queries that may be refused.
        rng: Generator of the resamples.
    """
    names, places = np.unique(clusters, return_inverse=True)
    drawn = rng.integers(0, len(names), size=(_RESAMPLES, len(names)))
    resamples = [np.bincount(row, minlength=len(names)).astype(np.float64) for row in drawn]
    counts = np.array([np.ones(len(names)), *resamples])[:, places]
    both = counts[:, has_answer].any(axis=1) & counts[:, ~has_answer].any(axis=1)
    near = [part * empty for part in _NEAR]
    shares: dict[ScoreName, list[Float64]] = {
        name: _answered(values, has_answer, counts[both], near) for name, values in scores.items()
    }
    at = _NEAR.index(1.0)
    candidates = [
        ScoreCandidate(
            name=name,
            auroc=float(roc_auc_score(has_answer, scores[name])),
            answered=float(share[at][0]),
            standard_error=float(share[at][1:].std()),
        )
        for name, share in shares.items()
    ]
    means: dict[ScoreName, Float64] = {name: np.mean(share, axis=0) for name, share in shares.items()}
    best = min(means.values(), key=lambda mean: float(mean[0]))
    lowest = np.minimum.accumulate([float(mean[0]) for mean in means.values()])
    close: list[ScoreName] = [
        name
        for (name, mean), lowest_so_far in zip(means.items(), lowest, strict=True)
        if mean[0] <= lowest_so_far and mean[0] - best[0] <= (mean[1:] - best[1:]).std()
    ]
    return close[0], candidates


def _answered(
    scores: Float64, has_answer: NDArray[np.bool_], counts: Float64, refused: Sequence[float]
) -> list[Float64]:
    """Return shares of unanswerable queries answered, (r,) for each share of answerable queries that may be refused.

    Args:
        scores: (q,) scores.
        has_answer: (q,) whether the query has an answer.
        counts: (r, q), how often each resample has each query; it has both kinds.
        refused: Shares of the answerable queries that may be refused.
    """
    answerable, unanswerable = np.sort(scores[has_answer]), np.sort(scores[~has_answer])
    candidates, first = np.unique(answerable, return_index=True)
    lost = _below(counts[:, has_answer], scores[has_answer])
    below = _below(counts[:, ~has_answer], scores[~has_answer])
    rows, shares = np.arange(len(counts)), []
    for share in refused:
        max_lost = share * lost[:, -1:] + 1e-9  # rounding of sums of integers
        place = (lost[:, first] <= max_lost).sum(axis=1) - 1
        reached = np.searchsorted(unanswerable, candidates[place], side="left")
        shares.append(1 - below[rows, reached] / below[:, -1])
    return shares


def _below(counts: Float64, scores: Float64) -> Float64:
    """Count the queries among the n lowest scores, for n from 0 to all of them, (r, q + 1)."""
    rising = counts[:, np.argsort(scores, kind="stable")]
    return np.concatenate([np.zeros((len(counts), 1)), np.cumsum(rising, axis=1)], axis=1)
