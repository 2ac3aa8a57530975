"""The check that τ still holds: a paired comparison of the metric at τ on the corpus before and after the update.

Every labelled query that both corpora can answer is run on both, with the same threshold. The loss of a query is its
accuracy or NDCG before minus that now, and counts by the weight of the query. τ holds if the mean loss is shown,
one-sided with 95 % confidence, to be within the margin (non-inferiority), by document if queries share documents
(`evidence/risk/losses.py`).

All labelled queries count, including those that chose τ. They favour the corpus that τ was chosen on, so they
overestimate the loss rather than underestimate it.

A query is left out if all its answers were removed, which no threshold can make up for, or if it is only about new
documents, which the old corpus could not answer. A changed document is assumed to answer the queries that it answered
before.

The results of the release that is updated, for all labelled queries at once. They follow the steps of `Retriever`,
except that a query's own passages are excluded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, CorpusDigests
from taugate.calibration.metrics.inputs import OwnPassages, exclude_own, max_own_passages, units_of
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import UpdateSettings
from taugate.calibration.study.reranked import RerankedCandidates, RerankedSearch, score_pairs
from taugate.data.beir import Dataset
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import ResultDocuments, ScoredQueries
from taugate.evidence.risk.losses import min_detectable_loss, paired_losses
from taugate.evidence.rules import CONFIDENCE
from taugate.policy.abstention import AnswerRule
from taugate.policy.arrays import Float32, QueryVectors
from taugate.policy.policy import POLICIES, Mask, Policy, keep_answered
from taugate.release.evidence import Interval
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.reader import Release
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, combined

_METRICS = {"accuracy": "accuracy", "ndcg": "NDCG"}


@dataclass(frozen=True)
class ThresholdCheck:
    """The comparison of both corpora."""

    units: SamplingUnits  # sampling units of the queries that both corpora can answer
    before: float  # mean of the metric at τ over these queries on the old corpus
    now: float
    loss: Interval  # loss of the average unit, with one-sided limits at CONFIDENCE each
    margin: float
    widened: bool  # whether the margin is above the default because the labels cannot show less
    unpaired: int  # number of queries that are only about new documents
    metric: str
    name: str = "the threshold"

    @property
    def holds(self) -> bool:
        """Whether the loss is shown to be within the margin."""
        return self.loss.upper <= self.margin

    @property
    def sentence(self) -> str:
        """The result as one sentence, without its full stop."""
        verdict = f"{self.name} still holds" if self.holds else f"{self.name} is not shown to hold"
        change = f"from {self.before:.4f} to {self.now:.4f}"
        average = "average document" if self.units.unit == "document" else "average query"
        return (
            f"{verdict}: on {self.units.words}, {self.metric} at τ went {change}; the {average} "
            f"{'loses' if self.loss.mean >= 0 else 'gains'} {abs(self.loss.mean):.4f}, and loses "
            f"at most {self.loss.upper:.4f} ({100 * CONFIDENCE:g} % confidence); {self.margin:g} is allowed"
        )


class PairedQueries(NamedTuple):
    """The queries that both corpora can answer."""

    rows: NDArray[np.int64]  # (q,) positions among the answerable queries
    queries: list[LabelledQuery]
    vectors: QueryVectors  # (q, d) float32
    own_passages: OwnPassages  # positions in the old corpus that are excluded from the results of each query


# Returns the (q, K) results of the queries in the old corpus, and the mask of those that were kept, as the release did.
ResultsBefore = Callable[[PairedQueries], tuple[TopK, Mask]]


def check_threshold(
    results_before: ResultsBefore,
    before: CorpusDigests,
    search: LabelledSearch,
    scored: ScoredQueries,
    policy: PolicyRecord,
    settings: UpdateSettings,
) -> ThresholdCheck:
    """Compare the policy's metric at τ before and after an update."""
    dataset, vectors = search.dataset, search.encoded.answerable
    grades_before = _grades_before(before, dataset)
    pairs = np.array([row for row, of in enumerate(grades_before) if max(of.values(), default=0) > 0], dtype=np.int64)
    if not len(pairs):
        raise InputError(
            f"{dataset.name}: no labelled query of the split {dataset.split} has a relevant document in the current "
            "release, so there is no way to check τ; run taugate calibrate on the new corpus"
        )
    queries = [dataset.answerable[row] for row in pairs.tolist()]
    paired_queries = PairedQueries(pairs, queries, vectors[pairs], _own_before(before, dataset, queries))
    paired, (top, kept) = scored.take(pairs), results_before(paired_queries)
    grades = [[grades_before[row].get(position, 0) for position in positions] for row, positions in _rows(pairs, top)]
    documents = np.unique(before.documents[top.positions], return_inverse=True)[1].reshape(kept.shape).astype(np.int32)
    earlier = replace(
        paired.judged, top=top, grades=np.array(grades), documents=ResultDocuments(documents, np.ones_like(kept))
    )
    then = earlier.metric(policy.metric, kept)
    now = paired.judged.metric(policy.metric, paired.kept(policy.kind, policy.threshold))
    units = units_of(queries, search.units.drawn)
    weights = np.array([query.weight for query in queries])
    scale, shares = float(weights.max() / weights.mean()), weights / weights.max()  # so that no loss is above 1
    losses = paired_losses((then - now) * shares, units)
    mean, lower, upper = losses.mean, losses.lower_limit(CONFIDENCE), losses.upper_limit(CONFIDENCE)
    margin = settings.margin_for(scale * min_detectable_loss(units, CONFIDENCE))
    loss = Interval(mean=scale * mean, lower=max(-1.0, scale * lower), upper=min(1.0, scale * upper))
    before_mean, now_mean = (float(np.average(values, weights=weights)) for values in (then, now))
    widened = settings.margin is None and margin > settings.margin_for(0)
    unpaired = len(dataset.answerable) - len(pairs)
    return ThresholdCheck(units, before_mean, now_mean, loss, margin, widened, unpaired, _METRICS[policy.metric])


def _rows(pairs: NDArray[np.int64], top: TopK) -> Iterator[tuple[int, list[int]]]:
    """Yield the row of each paired query with the positions of its results."""
    return zip(pairs.tolist(), top.positions.tolist(), strict=True)


def _grades_before(before: CorpusDigests, dataset: Dataset) -> list[dict[int, int]]:
    """Return, for each answerable query, the grades of passages by their positions in the old corpus.

    A judged document is looked up by its id, whatever its chunks were; a relevant chunk by its own id.
    """
    named = [_named(query, dataset.documents) for query in dataset.answerable]
    places = before.positions({name for names in named for name in names})
    return [{position: grade for name, grade in names.items() for position in places.get(name, ())} for names in named]


def _named(query: LabelledQuery, documents: DocumentStore) -> dict[str, int]:
    """Return the grades of a query's judged documents by id, or of the relevant chunks if only a part answers it."""
    chunks = query.chunks or {}
    grades = {documents[document].document_id: -grade for document, grade in query.lesser.items()}
    for document, grade in query.relevant.items():
        if document in chunks:
            grades |= {documents[position].id: grade for position in chunks[document]}
        else:
            grades[documents[document].document_id] = grade
    return grades


def _own_before(before: CorpusDigests, dataset: Dataset, queries: list[LabelledQuery]) -> OwnPassages:
    """Return the positions in the old corpus of each query's own passages, which are excluded from its results."""
    named = [[dataset.documents[position].id for position in query.own_passages] for query in queries]
    places = before.positions({name for names in named for name in names})
    return [tuple(position for name in names for position in places.get(name, ())) for names in named]


def first_stage_before(release: Release, paired: PairedQueries) -> tuple[TopK, Mask]:
    """Return the results of the first stage, or of the only one, and which of them are kept; see `ResultsBefore`."""
    retriever = release.retriever
    top = _searched(release, paired, retriever.policy.k)
    relevance = None if retriever.relevance is None else retriever.relevance.estimate(paired.vectors, top)
    return top, _kept(retriever.policy, retriever.abstention, paired, top, relevance)


@dataclass(frozen=True)
class SecondStageBefore:
    """Ranks the candidates of the old corpus, of which those in the new one have their scores already."""

    release: Release
    second: SecondStage
    after: RerankedSearch  # the search of the new corpus by the same reranker
    changes: CorpusChanges

    def __call__(self, paired: PairedQueries) -> tuple[TopK, Mask]:
        """Return the results of the second stage, and which of them are kept; see `ResultsBefore`."""
        rule, texts = self.second.rule, [query.text for query in paired.queries]
        first, k = _searched(self.release, paired, rule.candidates), rule.policy.k
        job, known = self.after.inputs.job, self._known(paired, first)
        scores = score_pairs(self.second.reranker, texts, first.positions, job, "ranking earlier documents", known)
        candidates = RerankedCandidates(first, combined(scores, first.scores, rule.first_stage_weight))
        top = TopK(candidates.second.scores[:, :k], candidates.second.positions[:, :k])
        relevance = None
        if rule.relevance is not None:
            relevance = rule.relevance.estimate(top.scores, {FIRST_SCORE: candidates.first_scores[:, :k]})
        return top, _kept(rule.policy, rule.abstention, paired, top, relevance)

    def _known(self, paired: PairedQueries, first: TopK) -> Float32:
        """Return the scores of (q, N) old candidates whose text is among the new candidates, NaN for the others."""
        new = self.after.answerable
        sources = self.changes.sources[new.first.positions[paired.rows]]
        same = (first.positions[:, :, None] == sources[:, None, :]) & (sources != UNKNOWN)[:, None, :]
        alone = combined(new.scores, new.first.scores, -self.after.first_stage_weight)  # shares depend on the corpus
        scores = np.take_along_axis(alone[paired.rows], same.argmax(axis=2), axis=1)
        return np.where(same.any(axis=2), scores, np.float32(np.nan))


def _searched(release: Release, paired: PairedQueries, depth: int) -> TopK:
    """Search the old corpus for so many results of each query."""
    results = release.retriever.index.search(paired.vectors, depth + max_own_passages(paired.own_passages))
    return exclude_own(paired.own_passages, results)


def _kept(
    policy: Policy, abstention: AnswerRule | None, paired: PairedQueries, top: TopK, relevance: Float32 | None
) -> Mask:
    texts = [query.text for query in paired.queries]
    answered = None if abstention is None else abstention.answered(texts, paired.vectors, top)
    return keep_answered(POLICIES[policy.kind].decide(top.scores, relevance), policy.threshold, answered)
