"""Cuts the results of queries: which are kept, why the others are not, and whether the calibration covers that.

What depends on the policy alone is computed for all queries of a batch at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.comparability import MAY_BE_CALIBRATED, SAME_SCORES, NotComparable
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.grouping import Parents, first_of_each
from taugate.retrieval.index.passages import FoundPassages
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.lists import Listed
from taugate.retrieval.policy.abstention import AnswerRule, RefusalScore
from taugate.retrieval.policy.policy import POLICIES, Mask, Policy, keep, keep_answered
from taugate.retrieval.query import Answer, Query, Reason
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True, slots=True)
class UncutResults:
    """The results of n queries before the cut, w each, best first.

    Attributes:
        positions: (n, w) int64.
        scores: (n, w) float32 similarities.
        decisions: (n, w) float32 scores that the policy compares with τ.
        relevance: (n, w) float32 or None.
        refusals: Scores by which queries are refused; None if the release refuses no query.
        uncut: (n, K) float32, see Answer.
        uncut_kept: See Answer.
    """

    positions: NDArray[np.int64]
    scores: Float32
    decisions: Float32
    relevance: Float32 | None
    refusals: Sequence[RefusalScore] | None
    uncut: Float32
    uncut_kept: list[int]

    @classmethod
    def of(cls, top: TopK, policy: Policy, relevance: Float32 | None, refusals: Sequence[RefusalScore] | None) -> Self:
        """Score the results of a search as the policy compares them.

        Args:
            top: Results of n queries.
            policy: Policy that will cut them.
            relevance: (n, w) float32 or None.
            refusals: See the class.
        """
        decisions = POLICIES[policy.kind].decide(top.scores, relevance)
        answered = None if refusals is None else np.array([score.answered for score in refusals])
        kept = keep_answered(decisions[:, : policy.k], policy.threshold, answered).sum(axis=1).tolist()
        return cls(top.positions, top.scores, decisions, relevance, refusals, top.scores[:, : policy.k], kept)

    def at(self, row: int, places: NDArray[np.int64]) -> Self:
        """Return the results of one query at these places in its list."""
        rows = slice(row, row + 1)
        return replace(
            self,
            positions=self.positions[rows, places],
            scores=self.scores[rows, places],
            decisions=self.decisions[rows, places],
            relevance=None if self.relevance is None else self.relevance[rows, places],
            refusals=None if self.refusals is None else self.refusals[rows],
            uncut=self.uncut[rows],
            uncut_kept=self.uncut_kept[rows],
        )


class Setting(NamedTuple):
    """How queries are answered that are cut together.

    Attributes:
        of_vectors: Whether the queries of the calibration were vectors.
        other_encoder: Whether the encoder is not the calibrated one.
        fallback: Whether the first of two stages answers alone.
        grouped: Whether results are grouped by document.
    """

    of_vectors: bool
    other_encoder: bool
    fallback: bool
    grouped: bool

    def departures(self, query: Query, k: int) -> list[NotComparable]:
        """Return why results are not comparable with those of the calibration at K = `k`, the reason to give first."""
        applies = {
            NotComparable.UNREADABLE: query.unreadable,
            NotComparable.TRUNCATED: query.truncated,
            NotComparable.FILTERED: query.filter or query.permitted,
            NotComparable.VECTOR: query.vector is not None and not self.of_vectors,
            NotComparable.PRECISION: query.vector is None and self.other_encoder,
            NotComparable.FALLBACK: self.fallback,
            NotComparable.THRESHOLD: query.threshold is not None,
            NotComparable.K: query.k != k,
            NotComparable.GROUPED: self.grouped,
        }
        return [reason for reason, holds in applies.items() if holds]


def cut(
    queries: Sequence[Query],
    results: UncutResults,
    policy: Policy,
    search_result: FoundPassages,
    abstention: AnswerRule | None,
    setting: Setting,
) -> Iterator[Answer]:
    """Keep the results among the first k that pass; if they are too few, add the best of the dropped ones.

    Args:
        queries: n queries, marked by `Query.as_read`.
        results: Their results.
        policy: The policy within the filter of the queries.
        search_result: Results of the queries that were searched together, with what the search read of them.
        abstention: Rule that refuses queries, for whether its certificate holds within filters; None if there is none.
        setting: What else differs from the calibration.
    """
    # Some refusals are not certified within a filter.
    everywhere = abstention is None or abstention.within_filters
    refusals: Sequence[RefusalScore | None] = results.refusals or [None] * len(queries)
    answered = [_is_answered(*pair) for pair in zip(queries, refusals, strict=True)]
    passing_rows = _passing(queries, results, policy, answered).tolist()
    for row, (query, refusal, passing) in enumerate(zip(queries, refusals, passing_rows, strict=True)):
        del passing[query.k :]
        applies = setting.departures(query, policy.k)
        overridden, refused = query.threshold is not None, answered[row] is False
        shown = _shown(query, results.positions[row], passing, refused=refused)
        threshold = query.threshold if overridden else policy.threshold
        certified = (everywhere or NotComparable.FILTERED not in applies) and MAY_BE_CALIBRATED.issuperset(applies)
        positions = results.positions[row, shown.places]
        yield Answer(
            positions=positions,
            scores=results.scores[row, shown.places],
            ranks=shown.ranks,
            relevance=None if results.relevance is None else results.relevance[row, shown.places],
            below_threshold=shown.below_threshold,
            propensities=shown.propensities,
            considered=len(passing),
            best_score=float(results.scores[row, 0]) if passing else None,
            threshold=None if threshold is None else float(np.float32(threshold)),
            policy=policy.kind,
            not_comparable=applies[0] if applies else None,
            calibrated=certified and policy.covers(query.k) and not shown.below_threshold.any(),
            reason=_reason(query, len(passing), len(positions), refused),
            refused=refused,
            refusal=refusal if passing and not overridden else None,
            uncut=results.uncut[row] if SAME_SCORES.issuperset(applies) else None,
            uncut_kept=results.uncut_kept[row],
            retrieved=results.positions[row],
            truncated=query.truncated,
            approximate=search_result.approximate,
            documents=_documents(search_result, positions),
        )


def cut_documents(
    queries: Sequence[Query], results: UncutResults, listed: Listed, parents: Parents, setting: Setting
) -> Iterator[Answer]:
    """Cut the best passage of each document, of queries that are all grouped."""
    for row, query in enumerate(queries):
        best = results.at(row, first_of_each(parents, results.positions[row]))
        for answer in cut([query], best, listed.policy, listed.result, listed.rule, setting):
            yield replace(answer, retrieved=None)


def _is_answered(query: Query, refusal: RefusalScore | None) -> bool | None:
    """Return whether a query as a whole is answered; None if nothing but the cut decides that."""
    if query.threshold is not None:
        return None
    if query.unreadable:
        return False
    return None if refusal is None else refusal.answered


def _passing(queries: Sequence[Query], results: UncutResults, policy: Policy, answered: Sequence[bool | None]) -> Mask:
    """Return which results of n queries pass the cut, (n, w); see `keep_answered` for those that are answered."""
    tau = -np.inf if policy.threshold is None else policy.threshold
    thresholds = np.array([tau if query.threshold is None else query.threshold for query in queries], np.float32)
    passing = keep(results.decisions, thresholds[:, None])
    passing[[row for row, answer in enumerate(answered) if answer], :1] = True
    passing[[row for row, answer in enumerate(answered) if answer is False]] = False
    return passing


class _Shown(NamedTuple):
    """The results of one query that are shown.

    Attributes:
        places: Places in the list.
        ranks: See Answer, as are the others.
        below_threshold: See Answer.
        propensities: See Answer.
    """

    places: slice | NDArray[np.int64]
    ranks: NDArray[np.int64]
    below_threshold: Mask
    propensities: Float32


def _shown(query: Query, positions: NDArray[np.int64], passing: list[bool], *, refused: bool) -> _Shown:
    """Select the results to show.

    Args:
        query: The query.
        positions: (w,) int64 positions of its results.
        passing: Which of the first k pass.
        refused: Whether the query is refused as a whole; then nothing is explored.
    """
    kept = sum(passing)
    if kept >= query.min_results and all(passing[:kept]) and (query.exploration is None or refused):
        # Nearly every query: the first results pass, and nothing else is shown.
        ranks = np.arange(1, kept + 1)
        return _Shown(slice(kept), ranks, np.zeros(kept, dtype=np.bool_), np.ones(kept, dtype=np.float32))
    mask = np.array(passing, dtype=np.bool_)
    chosen = np.flatnonzero(mask)
    if query.min_results > kept:
        chosen = np.sort(np.concatenate([chosen, np.flatnonzero(~mask)[: query.min_results - kept]]))
    chosen, propensities = _explore(query, positions, chosen, len(passing), refused=refused)
    return _Shown(chosen, chosen + 1, ~mask[chosen], propensities)


def _documents(search_result: FoundPassages, positions: NDArray[np.int64]) -> dict[int, Document]:
    """Return the documents of results that the search has read, by position."""
    candidates = search_result.candidates
    if not candidates:
        return {}
    return {position: candidates[position].document for position in positions.tolist() if position in candidates}


def _explore(
    query: Query, positions: NDArray[np.int64], chosen: NDArray[np.int64], considered: int, *, refused: bool
) -> tuple[NDArray[np.int64], Float32]:
    """Add the dropped results that exploration shows; returns the places of all results and their propensities.

    Args:
        query: Query with its exploration.
        positions: (w,) int64 positions of the results before the cut.
        chosen: (n,) int64 places of the kept results.
        considered: Number of results before the cut.
        refused: Whether the query is refused as a whole; then nothing is explored.
    """
    if query.exploration is None or refused:
        return chosen, np.ones(len(chosen), dtype=np.float32)
    dropped = np.setdiff1d(np.arange(considered), chosen)
    explored = dropped[query.exploration.draw(query.identity, positions[dropped])]
    together = np.concatenate([chosen, explored])
    propensities = np.repeat(np.array([1, query.exploration.share], np.float32), [len(chosen), len(explored)])
    order = np.argsort(together)
    return together[order], propensities[order]


def _reason(query: Query, considered: int, kept: int, refused: bool) -> Reason | None:
    """Return why nothing is kept; the index returns no result only if no document meets the filter."""
    if kept:
        return None
    if not considered:
        return "no_documents_match_filter"
    if refused:
        return "unreadable" if query.unreadable else "unanswerable"
    return "all_below_threshold"
