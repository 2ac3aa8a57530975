"""Sets the default refusal of a study: ρ, its limits, and what becomes of it if the corpus grows.

Forecasts what becomes of ρ if the corpus doubles with documents like those of today. The more documents there are, the
more similar is the best of them to any question, so a given ρ refuses fewer questions about other subjects. For random
halves of the corpus, ρ is chosen anew, and the present ρ is counted on the best results in the half. The next doubling
is taken to do as much again, to ρ and to the normal quantile of the share of refused questions. A forecast certifies
nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.metrics.inputs import SearchedQueries
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import CalibrationSettings
from taugate.data.questions import OffTopicQuestion, off_topic_table
from taugate.data.runs.run import Run
from taugate.evidence.abstention import refusal
from taugate.evidence.abstention.choose import LabelledGroups, QueryGroup
from taugate.evidence.clusters import ClusterIds
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.measure import PartName, QueryPart
from taugate.evidence.ranking import AnsweredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.policy.arrays import Float32, Ranking
from taugate.policy.policy import Mask
from taugate.release.refusal_records import DoubledCorpus, QuestionKind, RefusalRecord

# The mean of eight random halves has a third of the standard error of one. Tried with the cosine and eight seeds: with
# half of squad_v2_dev and of squadshifts_new_wiki as the corpus, .839 and .743 of the off-topic questions were forecast
# to be refused after the doubling, and .838 and .738 were; ρ was forecast as .323 and .346 and chosen as .335 and .357.
_HALVES = 8
Best = Callable[[Ranking], Float32]


@dataclass(frozen=True)
class Growth:
    """A searched corpus that may double."""

    search: LabelledSearch  # the labelled queries and the questions about other subjects, with their results
    # Takes the questions of each kind that choose ρ, by their best scores
    take: Callable[[Best], dict[QuestionKind, refusal.ScoredQuestions]]
    seed: int

    def doubled(self, evidence: refusal.RefusalEvidence) -> DoubledCorpus:
        """Forecast ρ, and the share of the questions about other subjects that the present ρ will refuse."""
        parents, passages = self.search.dataset.parents, len(self.search.dataset.documents)
        owners, documents = np.unique(np.arange(passages) if parents is None else parents, return_inverse=True)
        rng, count = np.random.default_rng(self.seed), len(owners)
        halves = []
        for _ in range(_HALVES):
            chosen = np.zeros(count, dtype=np.bool_)
            chosen[rng.permutation(count)[: count // 2]] = True
            halves.append(self._half(evidence, chosen[documents]))
        rho, refused = np.mean(halves, axis=0)
        questions = evidence.kinds["off_topic"]
        now = _refused(questions, evidence.rho)
        share = stats.norm.cdf(2 * _quantile(now, questions) - _quantile(refused, questions))
        return DoubledCorpus(documents=2 * count, rho=float(np.float32(2 * evidence.rho - rho)), refused=float(share))

    def _half(self, evidence: refusal.RefusalEvidence, within: Mask) -> tuple[float, float]:
        """Return the ρ of a half of the passages, (N,) bool, and the share that the present ρ refuses there."""

        def best(top: Ranking) -> Float32:
            inside = within[top.positions]  # nearly always one of them is; else the last of the list is about as good
            place = np.where(inside.any(axis=1), inside.argmax(axis=1), -1)
            scores: Float32 = top.scores[np.arange(len(place)), place]
            return scores

        judged, right = self.search.judged, evidence.right
        if right is not None:
            answered = np.flatnonzero(judged.accuracy() > 0)
            remaining: Mask = np.any(judged.relevant & within[judged.top.positions], axis=1)
            remains = np.flatnonzero(remaining[answered])
            right = refusal.ScoredQuestions(
                best(judged.top)[answered][remains], right.units.take(remains), right.chooses[remains]
            )
        half = replace(evidence, right=right, kinds=self.take(best))
        return half.rho, _refused(half.kinds["off_topic"], evidence.rho)


def _refused(questions: refusal.ScoredQuestions, rho: float) -> float:
    return float((questions.scores[questions.counted] < np.float32(rho)).mean())


def _quantile(share: float, questions: refusal.ScoredQuestions) -> float:
    """Return the normal quantile of a share of the counted questions, finite even if it is 0 or 1."""
    count = len(questions.counted)
    return float(stats.norm.ppf((share * count + 0.5) / (count + 1)))


@dataclass(frozen=True)
class LabelledParts:
    """The parts that the answerable queries take."""

    limits: Mask  # (n,) bool, whether the query limits how many right answers ρ loses
    certifies: Mask  # (n,) bool, whether the query may certify a loss, so that ρ must not depend on it


def divide_queries(parts: Mapping[PartName, QueryPart], roles: QueryRoles | None, rule: ThresholdRule) -> LabelledParts:
    """Decide which answerable queries limit ρ: calibration queries, or held-out ones if those certify a loss.

    Without held-out queries, those that fit the model of relevance limit ρ and certify nothing.
    """
    members = parts["calibration"].members
    limits, certifies = (np.zeros(sum(len(part.members) for part in parts.values()), dtype=np.bool_) for _ in range(2))
    if rule.statement is None:
        limits[members] = True
    else:
        limits[parts["heldout"].members if "heldout" in parts else roles.fit if roles else members[:0]] = True
        certifies[members] = ~limits[members]
    return LabelledParts(limits, certifies)


class RefusalQuestions(NamedTuple):
    """Questions that no document answers."""

    # The questions by kind, at least those about other subjects; near misses never choose ρ
    kinds: Mapping[QuestionKind, refusal.ScoredQuestions]
    left_out: int  # number of off-topic questions and requests that the documents seem to answer, which do not count
    # Forecasts what becomes of ρ if the corpus doubles; None if nothing is known of the corpus
    growth: Growth | None = None

    @classmethod
    def of_corpus(cls, search: LabelledSearch, parts: LabelledParts, seed: int) -> Self | None:
        """Take the questions of a searched data set; None if the documents seem to answer all about other subjects."""
        scores, found = search.judged.top.scores[:, 0], np.flatnonzero(search.judged.accuracy() > 0)
        remains = search.off_topic_remaining(scores[found][parts.limits[found]])
        asked = [question for question, left in zip(search.dataset.off_topic, remains, strict=True) if left]

        def choosing(best: Best) -> dict[QuestionKind, refusal.ScoredQuestions]:
            unanswerable = _unanswerable(search, best(search.own.top), search.own.clusters, parts)
            kinds = {**_shipped(best(search.off_topic.top)[remains], asked), "unanswerable": unanswerable}
            return {kind: questions for kind, questions in kinds.items() if questions is not None}

        near = [kind for kind, _ in search.near_misses]
        near_scores = np.concatenate([kind.top.scores[:, 0] for kind in near])
        near_miss = refusal.ScoredQuestions.of(
            near_scores, np.concatenate([kind.clusters for kind in near]), np.zeros(len(near_scores), dtype=np.bool_)
        )
        kinds = {**choosing(lambda top: top.scores[:, 0]), "near_miss": near_miss}
        return cls._of(kinds, int((~remains).sum()), Growth(search, choosing, seed))

    @classmethod
    def of_run(cls, search: SearchedQueries, off_topic: Run, parts: LabelledParts) -> Self | None:
        """Take the questions of a run beside that of the labelled queries; None without one about other subjects."""
        table = {question.text: question for question in off_topic_table()}
        # A question without results needs no refusal, and those of the user's own count as about other subjects.
        answered = [query for query in off_topic.queries.values() if len(query)]
        shipped = _shipped(
            np.array([query.scores[0] for query in answered], dtype=np.float32),
            [table.get(query.text or "") for query in answered],
        )
        clusters = search.cluster_ids[len(search.judged) :]
        unanswerable = _unanswerable(search, search.unanswerable.scores[:, 0], clusters, parts)
        return cls._of({**shipped, "unanswerable": unanswerable}, 0)

    @classmethod
    def _of(
        cls, kinds: Mapping[QuestionKind, refusal.ScoredQuestions | None], left_out: int, growth: Growth | None = None
    ) -> Self | None:
        present = {kind: questions for kind, questions in kinds.items() if questions is not None}
        return cls(present, left_out, growth) if "off_topic" in present else None


def scored_groups(search: SearchedQueries, calibration: NDArray[np.int64], seed: int) -> LabelledGroups:
    """Return the labelled queries of a search whose results have no vectors to learn from; see `LabelledGroups`."""
    clusters, count = search.cluster_ids, len(search.judged)
    kinds = (
        (search.dataset.answerable, search.judged.top, clusters[:count], search.components[0]),
        (search.dataset.unanswerable, search.unanswerable, clusters[count:], search.components[1]),
    )
    answerable, unanswerable = (
        QueryGroup(
            [query.text for query in queries], np.empty((len(queries), 0), dtype=np.float32), top, members, components
        )
        for queries, top, members, components in kinds
    )
    return LabelledGroups(answerable, unanswerable, None, calibration, seed)


def refuse_by_default(
    search: SearchedQueries,
    questions: RefusalQuestions,
    parts: LabelledParts,
    roles: QueryRoles | None,
    settings: CalibrationSettings,
    kept: RefusalRecord | None,
) -> refusal.StudiedRefusal:
    """Choose ρ, or keep that of an earlier release, and measure what it refuses.

    Args:
        settings: All settings, among them the rule of the threshold, and ρ if it is given or lowered.
        kept: Record of the earlier release; None to choose ρ.
    """
    # Generated queries resemble their documents more than people's queries do, so ρ could lose many of the latter.
    rule, rho = settings.rule, settings.rho if kept is None else kept.rho
    generated = any(query.origin in {"crop", "llm"} for query in search.dataset.answerable)
    provisional = (
        generated or not refusal.can_limit(refusal.MAX_LOST, len(search.units)) if kept is None else kept.provisional
    )
    scores, found = search.judged.top.scores[:, 0], np.flatnonzero(search.judged.accuracy() > 0)
    # A few crops, some of two or three words, say too little about people's questions to limit ρ, unless a loss is
    # certified for them.
    limits = parts.limits[found] & (not provisional or rule.statement is not None)
    right = refusal.ScoredQuestions(scores[found], search.units.take(found), limits) if len(found) else None
    evidence = refusal.RefusalEvidence(right, questions.kinds, questions.left_out, refusal.planned_loss(rule), rho)
    uncertified = None
    if right is not None and rule.statement is not None and kept is None:
        usual = parts.certifies if settings.holdout else parts.limits | parts.certifies
        usual_right = replace(right, chooses=usual[found] & (not provisional))
        uncertified = replace(evidence, right=usual_right, lost=refusal.MAX_LOST, kept=None)
    fitted = roles is not None and bool(parts.certifies.any() and parts.limits[roles.fit].all())
    answering = AnsweredQueries(
        scores, search.unanswerable.scores[:, 0], np.float32(evidence.rho), certified=True, fitted=fitted
    )
    rule_served = AnswerRule(AnswerScore("best_similarity", Signals(search.judged.top.scores.shape[1])), evidence.rho)
    record = evidence.record(provisional=provisional, uncertified=uncertified)
    if questions.growth is not None and rho is None:
        record = record.model_copy(update={"doubled": questions.growth.doubled(evidence)})
    return refusal.StudiedRefusal(rule_served, record, answering, evidence=evidence)


def lowered_rho(evidence: CalibrationQueries, planned: float, rho: float) -> str:
    """Say what the planned ρ would cost, for the progress."""
    certifying = evidence.scored.take(evidence.certifying(model=False))
    right = certifying.judged.accuracy() > 0
    lost = int(np.isfinite(certifying.refusals()[right, 0]).sum())
    return (
        f"warning: the certificate lowers ρ from {planned:.4f} to {rho:.4f}, and no result is dropped: the higher ρ "
        f"refuses {lost:,} of the {right.sum():,} certifying queries that find an answer; --refuse off certifies a cut "
        "instead"
    )


def _unanswerable(
    search: SearchedQueries, scores: Float32, clusters: ClusterIds, parts: LabelledParts
) -> refusal.ScoredQuestions | None:
    """Take the user's unanswerable queries, of which those choose ρ that share no document with certifying queries."""
    certified = search.cluster_ids[: len(search.judged)][parts.certifies]
    return refusal.ScoredQuestions.of(scores, clusters, ~np.isin(clusters, certified))


def _shipped(
    scores: Float32, questions: Sequence[OffTopicQuestion | None]
) -> Mapping[QuestionKind, refusal.ScoredQuestions | None]:
    """Divide (o,) questions into those about other subjects, and requests; None is a question of the user's own."""
    requests, chooses = (
        np.array([question is not None and getattr(question, name) for question in questions], dtype=np.bool_)
        for name in ("is_request", "chooses")
    )
    of_user = np.array([question is None for question in questions], dtype=np.bool_)
    fields = np.array(["" if question is None else f"{question.kind} {question.field}" for question in questions])

    def kind(rows: Mask) -> refusal.ScoredQuestions | None:
        scored = refusal.ScoredQuestions.of(scores[rows], np.arange(rows.sum()), (of_user | chooses)[rows])
        return scored if scored is None or of_user[rows].any() else replace(scored, fields=fields[rows])

    return {"off_topic": kind(~requests), "request": kind(requests)}
