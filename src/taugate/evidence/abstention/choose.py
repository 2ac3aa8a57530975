"""Chooses the score that decides whether a query is answered: the best similarity, or a model of several signals.

The signals are those of a search in a corpus, or the component scores of a fused list.

Four tenths of the queries, by whole documents, fit the model and compare it with the best similarity. A question
without an answer is about a document as well, and is kept with the other queries about it. The remaining queries
certify (`certify`). Other scores alone were rarely better on six public sets (benchmarks/decisions.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from taugate.evidence.divisions import cluster_folds
from taugate.evidence.relevance.fitting import fit_logistic, lowest_scores
from taugate.policy.abstention import AnswerScore, ScoreName, Signals, Words, signals_of
from taugate.policy.arrays import CorpusVectors, Float32, Float64, QueryVectors, Ranking, mean_and_covariance
from taugate.policy.relevance import Logistic
from taugate.policy.score_relevance import Components
from taugate.release.refusal_records import ScoreCandidate

# Inverse strength of the ridge penalty on standardised signals; benchmarks/decisions.md compares other values.
_STRENGTHS: Mapping[ScoreName, float] = {"model": 0.3, "components": 0.03}
# Share of the queries to fit and to choose: with a half or more the score is hardly better on unseen documents, with a
# quarter it is worse (benchmarks/decisions.md). As with the cut (evidence/divisions.py), most certify.
_LEARN = 0.4
# With fewer queries of a kind the standard error of a share is .09 or more, √(.25/30), too large to compare scores.
_MIN_OF_KIND = 30
MIN_LABELLED = round(_MIN_OF_KIND / _LEARN)  # of a kind, for so many to learn from
# Multiple of γ up to which scores are compared: at γ alone the choice depends on few queries.
_NEAR = 1.5


@dataclass(frozen=True)
class QueryGroup:
    """The n queries of one kind, answerable or unanswerable."""

    texts: Sequence[str]
    vectors: QueryVectors  # (n, d) float32
    top: Ranking  # (n, K) results
    # (n,) clusters, numbered jointly for both kinds: a number means the same documents in both.
    clusters: NDArray[np.int64]
    # Component scores of the results by name, (n, K) float32 each, NaN for a missing one.
    components: Components = field(default_factory=dict)

    def values(self, signals: Signals, names: Sequence[str]) -> Float64:
        """Compute signals of the queries, (n, len(names)) float64."""
        return signals.values(names, self.texts, self.vectors, self.top, self.components)


@dataclass(frozen=True)
class EncodedCorpus:
    """N documents: (N, d) float32 vectors, in memory or not, and the words of the encoded texts."""

    vectors: CorpusVectors
    words: Words

    def signals(self, k: int) -> Signals:
        """Prepare all signals of a score from the first k results of a query."""
        return Signals(k, mean_and_covariance(self.vectors), self.words)


@dataclass(frozen=True)
class QueryDivision:
    """The queries that learn a score, and those that certify its threshold; (q,), answerable ones first."""

    has_answer: NDArray[np.bool_]
    eligible: NDArray[np.bool_]  # whether it may learn or certify
    order: NDArray[np.int64]  # its cluster, numbered at random
    learns: NDArray[np.bool_]  # whether it learns; none if there are too few, or if there is nothing to choose from

    @property
    def certify(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the certifying answerable queries, and of the unanswerable ones, ascending."""
        certifies, size = np.flatnonzero(self.eligible & ~self.learns), int(self.has_answer.sum())
        return certifies[certifies < size], certifies[certifies >= size] - size


@dataclass(frozen=True)
class LabelledGroups:
    """The labelled queries of both kinds, which choose a score and certify its threshold."""

    answerable: QueryGroup
    unanswerable: QueryGroup
    # The documents; None if only the scores of results are known. Without component scores, the best one then decides
    # alone.
    corpus: EncodedCorpus | None
    calibration: NDArray[np.int64]  # positions of the answerable queries that may choose or certify
    seed: int

    @cached_property
    def division(self) -> QueryDivision:
        """The queries that learn: whole clusters in random order, up to a share of the eligible queries."""
        clusters = np.concatenate([self.answerable.clusters, self.unanswerable.clusters])
        has_answer = np.arange(len(clusters)) < len(self.answerable.clusters)
        eligible = ~has_answer
        eligible[self.calibration] = True
        names, places = np.unique(clusters, return_inverse=True)
        order: NDArray[np.int64] = np.random.default_rng([self.seed, 5]).permutation(len(names))[places]
        up_to = np.cumsum(np.bincount(order, weights=eligible))
        learns = eligible & (up_to <= _LEARN * eligible.sum())[order]
        too_few = min(learns[has_answer].sum(), learns[~has_answer].sum()) < _MIN_OF_KIND
        if too_few or (self.corpus is None and not self.answerable.components):
            learns[:] = False
        return QueryDivision(has_answer, eligible, order, learns)


@dataclass(frozen=True)
class ChosenScore:
    """The chosen score with its values for all queries."""

    score: AnswerScore  # score for serving
    answerable: Float32  # (n,) scores of the answerable queries
    unanswerable: Float32  # (u,) scores of the unanswerable queries
    candidates: list[ScoreCandidate]  # compared scores, the simplest first
    # Scores of both kinds by name, of the chosen score and then of the best similarity.
    curves: Mapping[ScoreName, tuple[Float32, Float32]]


def choose_score(groups: LabelledGroups, empty: float) -> ChosenScore:
    """Choose a score on some of the queries, and score all of them.

    With fewer than 30 of a kind to learn from, it is the best similarity without a choice, and every query certifies.
    One thread, and the separate generator `numpy.random.default_rng([seed, 5])`. `empty` is γ, the share of answerable
    queries that may be refused.
    """
    answerable, unanswerable, corpus, division = groups.answerable, groups.unanswerable, groups.corpus, groups.division
    size, k = len(answerable.clusters), answerable.top.scores.shape[1]
    has_answer, eligible, order, learns = division.has_answer, division.eligible, division.order, division.learns
    modelled: ScoreName = "components" if corpus is None else "model"
    if not learns.any():
        modelled = "best_similarity"
    with threadpool_limits(limits=1):
        floors = lowest_scores(answerable.components, np.flatnonzero(learns[:size]))
        signals = Signals(k, floors=floors) if corpus is None else corpus.signals(k)
        names = signals_of(modelled, floors)
        values = np.concatenate([group.values(signals, names) for group in (answerable, unanswerable)])
        choosing = learns if learns.any() else eligible
        name, candidates = _choose(values[choosing], has_answer[choosing], order[choosing], modelled, empty)
        model = None
        if name != "best_similarity":
            model = fit_score_model(values[learns], has_answer[learns], _STRENGTHS[name])
        score = AnswerScore(name, signals.needed(name), model)
        scores = score.from_values(values)
    best = values[:, 0].astype(np.float32)
    curves = {name: (scores[:size], scores[size:])} | {"best_similarity": (best[:size], best[size:])}
    return ChosenScore(score, scores[:size], scores[size:], candidates, curves)


def _choose(
    values: Float64, has_answer: NDArray[np.bool_], clusters: NDArray[np.int64], modelled: ScoreName, empty: float
) -> tuple[ScoreName, list[ScoreCandidate]]:
    """Compare the best similarity with a model on documents that the model has not seen."""
    # A model of component scores is chosen without a contest. In samples of scifact and squad_v2_dev with 60 to 800
    # queries, that separated better on unseen documents than a choice by the few queries that learn, by .01 to .02
    # AUROC. Returns the chosen score, and a record of each score. `values` is (q, F) float64 signals, the best
    # similarity first; `has_answer` is (q,) whether the query has an answer; `clusters` is (q,) clusters, numbered at
    # random; `empty` is γ, the share of answerable queries that may be refused.
    scores: dict[ScoreName, Float64] = {"best_similarity": values[:, 0]}
    if modelled != "best_similarity":
        odds = out_of_fold(values, has_answer, clusters, _STRENGTHS[modelled])
        if not np.isnan(odds).any():
            scores[modelled] = odds
    candidates = [_candidate(name, score, has_answer, empty) for name, score in scores.items()]
    if "components" in scores:
        return "components", candidates
    separation = {name: _separation(score, has_answer, empty) for name, score in scores.items()}
    return max(scores, key=lambda name: separation[name]), candidates  # the first of equal ones


def fit_score_model(values: Float64, answerable: NDArray[np.bool_], strength: float = _STRENGTHS["model"]) -> Logistic:
    """Fit the model of whether a query has an answer.

    Both kinds have the same weight, because only the order matters and the share of unanswerable queries among the
    labelled ones differs from that among users' queries. One thread makes the same data give the same bits. `values`
    are (q, F) float64 signals, `answerable` is (q,), `strength` the inverse strength of the ridge penalty.
    """
    with threadpool_limits(limits=1):
        return fit_logistic(values, answerable, strength, "balanced")


def out_of_fold(
    values: Float64, answerable: NDArray[np.bool_], clusters: NDArray[np.int64], strength: float = _STRENGTHS["model"]
) -> Float64:
    """Return the log-odds of each query, (q,), by a model that has seen no query on its documents.

    NaN if a fold leaves only one kind to learn from. Arguments are those of `fit_score_model`; `clusters` are (q,),
    numbered at random, so that every fifth cluster is a random sample.
    """
    odds = np.full(len(values), np.nan)
    for fitting, fold in cluster_folds(clusters):
        if answerable[fitting].any() and not answerable[fitting].all():
            odds[fold] = fit_score_model(values[fitting], answerable[fitting], strength).log_odds(values[fold])
    return odds


def _candidate(name: ScoreName, scores: Float64, has_answer: NDArray[np.bool_], empty: float) -> ScoreCandidate:
    """Record a score, with the share of unanswerable queries answered if it refuses a share of the answerable ones."""
    threshold = np.sort(scores[has_answer])[int(empty * has_answer.sum() + 1e-9)]
    return ScoreCandidate(
        name=name,
        auroc=float(roc_auc_score(has_answer, scores)),
        answered=float((scores[~has_answer] >= threshold).mean()),
    )


def _separation(scores: Float64, has_answer: NDArray[np.bool_], empty: float) -> float:
    """Return the partial area under the ROC curve for refusals of up to 1.5 times γ (McClish 1989)."""
    return float(roc_auc_score(~has_answer, -scores, max_fpr=min(1.0, _NEAR * empty)))
