"""The default refusal ρ, a threshold of the best similarity, and how many unanswerable queries get a result.

ρ refuses nearly all questions about other subjects, nearly all short requests to an assistant, and as many of the
user's unanswerable queries as it can, while few right answers are lost. It is the lowest threshold that does so,
because users' queries score lower than labelled ones more often than higher. Near misses are only counted: they score
among the right answers, so that refusing more of them costs about as many.

What is reported did not choose: of the questions that come with Taugate, one half chooses and the other is counted.
Queries are divided into folds by cluster, and those that choose ρ are counted by the ρ that the other folds choose.

Users ask off-topic questions of fields that the table lacks, and fields differ more than chance. So the stated lower
limit is one for the questions of a further field (`further_field_refused`), unless that of the counted ones is lower.

No query that certifies a loss chooses ρ: held-out queries limit it then. So a path is fixed before it is tested: no
refusal, ρ rising to its value, τ rising. A query is lost if it is refused or the cut drops all of its relevant results,
so its loss never falls along the path. The tests of `evidence/risk` follow the path to their first failure, which
needs no correction. If that is before ρ has its value, the certificate wins: ρ is lowered (`study/study.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.ranking import AnsweredQueries, ScoredQueries
from taugate.evidence.relevance.fitting import UnansweredQuestions
from taugate.evidence.risk.certify import upper_loss_limit
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import CONFIDENCE, ThresholdRule
from taugate.policy.abstention import AnswerRule, ScoreName
from taugate.policy.arrays import Float32
from taugate.policy.policy import POLICIES, Mask, keep
from taugate.release.evidence import Interval
from taugate.release.outcome_records import PolicyRecord
from taugate.release.refusal_records import QuestionKind, RefusalRecord, RefusedQuestions

# Largest share of the right answers that the default ρ may lose: one query in seventy.
MAX_LOST = 0.015
# Part of a certified loss that ρ may use on average; the cut needs the remainder. With 150 labels and --max-loss 0.05,
# one of 105 certifying queries may be lost. A sixteenth loses two or more with chance .04, an eighth with .14.
_SHARE_OF_LOSS = 1 / 16
# Right answers for each degree of freedom of the tail below the lowest of them. With 30 to 128 answers, ρ loses .2 to
# .9 times its share on squad_v2_dev, cosqa and scifact, which chose, .5 to 1.2 times on covidqa_chunks, 1.3 to 1.7
# times on pubmedqa_labelled, and .0 to .4 times on squadshifts_new_wiki.
_ANSWERS_A_DEGREE = 3
# Share of each kind of question that may remain: the last few cost the most right answers. On the sample, .1 loses .7 %
# of them and .03 loses 1.2 %; on a folder of 27 documents with 34 questions of people, 0 and 6 %.
_REMAINING = 0.1
# So many that each off-topic question or request is counted by the ρ of nearly all others of its kind.
_FOLDS = 50


@dataclass(frozen=True)
class StudiedRefusal:
    """What refuses queries as a whole, with the scores of all labelled queries."""

    rule: AnswerRule  # score and threshold for serving
    record: RefusalRecord
    answering: AnsweredQueries  # scores of the labelled queries, with ρ
    # Positions of the answerable and of the unanswerable queries that certify requested limits; None without any.
    certifying: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    # Scores of both kinds of query by their names, that in force first, if limits were requested.
    curves: Mapping[ScoreName, tuple[Float32, Float32]] = field(default_factory=dict)
    evidence: "RefusalEvidence | None" = None  # what chose the default ρ; None if limits were requested


@dataclass(frozen=True)
class ScoredQuestions:
    """Queries or questions of one kind, with the scores by which they are refused."""

    scores: Float32  # (n,) best similarities
    units: SamplingUnits
    chooses: Mask  # (n,) whether the question helps to choose ρ
    fields: NDArray[np.str_] | None = None  # (n,) field of each question that comes with Taugate; None for others

    @classmethod
    def of(cls, scores: Float32, clusters: ClusterIds, chooses: Mask) -> Self | None:
        """Take (n,) questions by their scores and clusters; None if there are none."""
        return cls(scores, SamplingUnits.from_clusters(clusters), chooses) if len(scores) else None

    @property
    def counted(self) -> NDArray[np.int64]:
        """Positions of the counted questions: all, or those of Taugate that do not choose if there are any."""
        rows = np.flatnonzero(~self.chooses)
        return rows if self.fields is not None and len(rows) else np.arange(len(self.scores))

    @property
    def folds(self) -> ClusterIds:
        """The fold of every question, (n,) int64."""
        return self.units.clusters % _FOLDS

    def choosing(self, without: int | None) -> Float32:
        """Return the scores of the questions that choose, less those of a fold."""
        return self.scores[self.chooses if without is None else self.chooses & (self.folds != without)]


def planned_loss(rule: ThresholdRule) -> float:
    """Return the share of right answers that ρ may lose on average; a certified loss covers it."""
    return MAX_LOST if rule.statement is None else min(MAX_LOST, _SHARE_OF_LOSS * rule.max_loss)


def can_limit(share: float, queries: int) -> bool:
    """Return whether a share of right answers lost can be limited with so many queries: 1 / (n + 1) ≤ share."""
    return share * (queries + 1) >= 1


def choose_rho(right: Float32, kinds: list[Float32], lost: float) -> float:
    """Return the lowest ρ that refuses nearly all questions of each kind, or the highest that loses few right answers.

    `right` are (n,) float32 scores of right answers, `lost` is the share of them that may be lost on average. `kinds`
    has one array for each kind of question without an answer; without any, nothing is refused.
    """
    above = [np.nextafter(np.sort(kind), np.float32(np.inf)) for kind in kinds]  # the lowest thresholds that refuse
    enough = [float(scores[int(np.ceil((1 - _REMAINING) * len(scores))) - 1]) for scores in above]
    return min(max(enough, default=-np.inf), _ceiling(right, lost))


def _ceiling(right: Float32, lost: float) -> float:
    """Return the highest threshold that loses at most a share of right answers, on average over such samples."""
    # With k losses among n, the next query is lost with probability (k + 1) / (n + 1) at most (conformal risk control,
    # Angelopoulos et al., ICLR 2024, eq. 4). If n is too small to lose one, the threshold is at most the lowest right
    # answer: a quantile of Student's distribution around the median, whose scale is the root mean square deviation of
    # the scores below it, because they spread farther than those above.
    if len(right) < 2:
        return float(np.inf)
    allowed = int(np.floor(lost * (len(right) + 1) + 1e-9)) - 1
    if allowed >= 0:
        return float(np.sort(right)[allowed])
    scores = right.astype(np.float64)
    median = np.median(scores)
    below = scores[scores <= median] - median
    deviation = np.sqrt(np.square(below).sum() / max(1, np.count_nonzero(below)))
    degrees = max(2.0, len(scores) / _ANSWERS_A_DEGREE - 1)
    tail = median + stats.t.ppf(lost, degrees) * deviation * np.sqrt(1 + 1 / len(scores))
    return float(np.float32(min(tail, scores.min())))


@dataclass(frozen=True)
class RefusalEvidence:
    """Right answers, and questions that no document answers."""

    # Answerable queries that find a relevant document in their top K; None if there are none.
    right: ScoredQuestions | None
    # Questions without an answer by kind, at least those about other subjects.
    kinds: Mapping[QuestionKind, ScoredQuestions]
    left_out: int  # number of off-topic questions and requests that the documents seem to answer, which do not count
    lost: float  # share of right answers that may be lost on average
    kept: float | None = None  # ρ of an earlier release, or the one that a certificate allows; None to choose it

    @cached_property
    def rho(self) -> float:
        """The threshold, chosen by all that choose."""
        return self._rho() if self.kept is None else self.kept

    def _rho(self, without: int | None = None) -> float:
        """Choose ρ without a fold."""
        # Unanswerable queries score like answerable ones, and can raise ρ to its limit. With too few right answers to
        # limit what that loses, off-topic questions choose alone.
        right = self.kinds["off_topic"].scores[:0] if self.right is None else self.right.choosing(without)
        names: tuple[QuestionKind, ...] = ("off_topic", "request")
        if can_limit(self.lost, len(right)):
            names = (*names, "unanswerable")
        kinds = [self.kinds[name].choosing(without) for name in names if name in self.kinds]
        return choose_rho(right, [scores for scores in kinds if len(scores)], self.lost)

    @cached_property
    def _rhos(self) -> Float32:
        """ρ without each fold, (_FOLDS,)."""
        rhos = [self._rho(fold) if self.kept is None else self.kept for fold in range(_FOLDS)]
        return np.array(rhos, dtype=np.float32)

    def refused(self, questions: ScoredQuestions) -> Mask:
        """Return which questions are refused, (n,): those that choose by the ρ of the other folds, the others by ρ."""
        refused: Mask = questions.scores < np.where(
            questions.chooses, self._rhos[questions.folds], np.float32(self.rho)
        )
        return refused

    def record(self, *, provisional: bool, uncertified: Self | None = None) -> RefusalRecord:
        """Record how many questions of each kind are refused, and how many right answers.

        `provisional`: labelled queries are too few, or generated, to limit the share of lost answers. `uncertified` is
        the evidence as it would choose ρ if no loss were certified; None if none is.
        """
        lost = Interval(mean=0.0, lower=0.0, upper=1.0)
        if self.right is not None:
            refused = self.refused(self.right)
            lost = Interval(
                mean=float(refused.mean()),
                lower=1 - share_at_most(~refused, self.right.units),
                upper=share_at_most(refused, self.right.units),
            )
        return RefusalRecord(
            score="best_similarity",
            rho=self.rho,
            provisional=provisional,
            evidence={kind: self._count(questions, uncertified) for kind, questions in self.kinds.items()},
            lost=lost,
            left_out=self.left_out,
        )

    @cached_property
    def _of_further_field(self) -> float:
        """`further_field_refused` for the questions that come with Taugate; 1 if there are none."""
        kinds = [kind for kind in self.kinds.values() if kind.fields is not None]
        if not kinds:
            return 1.0
        scores = np.concatenate([kind.scores[kind.counted] for kind in kinds])
        fields = np.concatenate([kind.fields[kind.counted] for kind in kinds if kind.fields is not None])
        return further_field_refused(scores, fields, self.rho)

    def _count(self, questions: ScoredQuestions, uncertified: Self | None) -> RefusedQuestions:
        rows = questions.counted
        counted = count_refused(self.refused(questions)[rows], questions.units.take(rows))
        lower = counted.lower if questions.fields is None else min(counted.lower, self._of_further_field)
        before = None if uncertified is None else int(uncertified.refused(questions)[rows].sum())
        return counted.model_copy(update={"lower": lower, "uncertified": before})


def count_refused(refused: Mask, units: SamplingUnits) -> RefusedQuestions:
    """Count the (n,) questions without an answer that get no result, with the limit of their share."""
    return RefusedQuestions(
        queries=len(refused),
        refused=int(refused.sum()),
        lower=1 - share_at_most(~refused, units),
        evidence=units.record,
    )


def further_field_refused(scores: Float32, fields: NDArray[np.str_], rho: float) -> float:
    """Return a 95 % lower limit of the share of questions below ρ in a field that is not among `fields`.

    The model is one-way analysis of variance with random fields: a score is the mean, plus a deviation of the field,
    plus one of the question, all normal. It is above the share of questions of people from other fields far more rarely
    than an exact limit of the kind (benchmarks/decisions.md). `scores` and `fields` are (n,). If no field has two
    questions, fields cannot be told from chance: the limit is 1.
    """
    numbers, sizes = np.unique(fields, return_inverse=True, return_counts=True)[1:]
    count, groups = len(scores), len(sizes)
    if not 1 < groups < count:
        return 1.0
    values = scores.astype(np.float64)
    means = np.bincount(numbers, values) / sizes
    within = float(((values - means[numbers]) ** 2).sum()) / (count - groups)
    between = float((sizes * (means - values.mean()) ** 2).sum()) / (groups - 1)
    of_field = max(0.0, (between - within) * (groups - 1) / (count - float((sizes**2).sum()) / count))
    highest = values.mean() + stats.t.ppf(CONFIDENCE, groups - 1) * np.sqrt(of_field + between / count)
    return float(stats.norm.cdf((rho - highest) / np.sqrt(max(within, np.finfo(np.float64).tiny))))


def share_at_most(happened: Mask, units: SamplingUnits) -> float:
    """Return the one-sided 95 % upper limit of a share; every query counts as one.

    `happened` is (n,) bool, n ≥ 1.
    """
    steps = LossSteps.of_empty((~happened).astype(np.float32)[:, None], replace(units, cap=None))
    return upper_loss_limit(steps, 0.5, CONFIDENCE)


def refused_unanswerable(
    scored: ScoredQueries, policy: PolicyRecord, units: SamplingUnits, refusal: StudiedRefusal | None
) -> RefusedQuestions:
    """Count the labelled unanswerable queries without a result, among those that did not choose a score.

    If limits were certified on these queries, the certified limit is that of the share.
    """
    empty: Mask = ~np.any(scored.unanswerable_kept(policy.kind, policy.threshold), axis=1)
    if refusal is None or refusal.certifying is None or refusal.record.limits is None:
        return count_refused(empty, units)
    rows, certified = refusal.certifying[1], refusal.record.limits.answered.upper
    counted = count_refused(empty[rows], units.take(rows))
    # A rule that is kept from an earlier release may answer more than was certified there.
    if not refusal.record.certified or counted.answered > certified:
        return counted
    return counted.model_copy(update={"lower": 1 - certified})


def refused_off_topic(
    questions: UnansweredQuestions, relevance: Float32 | None, policy: PolicyRecord
) -> RefusedQuestions:
    """Count the questions from another field without a result; they are searched and cut as any query is.

    `relevance` is (o, K) float32 relevance of the results; None without a model.
    """
    kept = keep(POLICIES[policy.kind].decide(questions.top.scores, relevance), policy.threshold)
    empty: Mask = ~np.any(kept, axis=1)
    return count_refused(empty, SamplingUnits.from_clusters(questions.clusters))
