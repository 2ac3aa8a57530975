"""The results of the release that is updated, for all labelled queries at once.

They follow the steps of `Retriever`, except that a query's own passages are excluded.
"""

from dataclasses import dataclass

import numpy as np

from taugate.calibration.encoding.changes import UNKNOWN, CorpusChanges
from taugate.calibration.metrics.own_documents import exclude_own, max_own_passages
from taugate.calibration.study.reranked import RerankedCandidates, RerankedSearch, score_pairs
from taugate.calibration.update.check import PairedQueries
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.policy import POLICIES, Mask, Policy, keep_answered
from taugate.retrieval.release.reader import Release
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, combined
from taugate.retrieval.vectors.similarity import Float32


def first_stage_before(release: Release, paired: PairedQueries) -> tuple[TopK, Mask]:
    """Return the results of the first stage, or of the only one, and which of them are kept; see `ResultsBefore`."""
    retriever = release.retriever
    top = _searched(release, paired, retriever.policy.k)
    relevance = None if retriever.relevance is None else retriever.relevance.estimate(paired.vectors, top)
    return top, _kept(retriever.policy, retriever.abstention, paired, top, relevance)


@dataclass(frozen=True)
class SecondStageBefore:
    """Ranks the candidates of the old corpus, of which those in the new one have their scores already.

    Attributes:
        release: The open release, with two stages.
        second: Its second stage.
        after: The search of the new corpus by the same reranker.
        changes: Changes of the corpus.
    """

    release: Release
    second: SecondStage
    after: RerankedSearch
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
    found = release.retriever.index.search(paired.vectors, depth + max_own_passages(paired.own_passages))
    return exclude_own(paired.own_passages, found)


def _kept(
    policy: Policy, abstention: AnswerRule | None, paired: PairedQueries, top: TopK, relevance: Float32 | None
) -> Mask:
    texts = [query.text for query in paired.queries]
    answered = None if abstention is None else abstention.answered(texts, paired.vectors, top)
    return keep_answered(POLICIES[policy.kind].decide(top.scores, relevance), policy.threshold, answered)
