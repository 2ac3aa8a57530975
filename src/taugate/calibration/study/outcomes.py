"""What a policy does to the queries of a study: answers lost, the reference of drift, and each question's scores."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.study.study import Study
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.abstention.refusal import ScoredQuestions, share_at_most
from taugate.evidence.clusters import SamplingUnits
from taugate.policy.arrays import Float32
from taugate.policy.policy import POLICIES, Mask
from taugate.policy.score_relevance import component_means
from taugate.release import layout
from taugate.release.evidence_file import AnswerableEvidence, EvidenceFile, QueryEvidence, QuestionEvidence
from taugate.release.manifest import ReleaseManifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.queries import MAX_QUESTIONS, CalibrationQuestion, Outcomes, QuestionKind, Reference
from taugate.release.records import CheckedAnswers
from taugate.release.refusal_records import QuestionKind as RefusedKind

# Enough to reveal a wrong encoder, index or retriever, few enough to run at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


@dataclass(frozen=True)
class Calibrated(Study):
    """A study with the manifest of its release."""

    manifest: ReleaseManifest

    @property
    def policy(self) -> PolicyRecord:
        """The policy in force."""
        return self.manifest.policy

    @property
    def threshold(self) -> np.float32 | None:
        """τ, as scores are compared with it; None without a cut."""
        return self.policy.threshold


def checked_answers(study: Study, policy: PolicyRecord) -> CheckedAnswers | None:
    """Count the answers that are lost, on held-out queries if any are; None if no query finds an answer."""
    members = study.measured.members
    queries = study.scored.take(members)
    answered = np.flatnonzero(queries.judged.accuracy() > 0)
    if not len(answered):
        return None
    lost: Mask = queries.judged.accuracy(queries.kept(policy.kind, policy.threshold))[answered] == 0
    units = study.search.units.take(members[answered])
    return CheckedAnswers(
        mean=float(lost.mean()),
        lower=1 - share_at_most(~lost, units),
        upper=share_at_most(lost, units),
        heldout="heldout" in study.parts,
        answers=len(answered),
        lost=int(lost.sum()),
    )


def drift_reference(study: Study, policy: PolicyRecord) -> Reference:
    """Collect the distributions that drift is measured against."""
    part = study.parts["calibration"]
    queries = study.scored.take(part.members)
    kept = queries.kept(policy.kind, policy.threshold)
    relevance = queries.relevance if POLICIES[policy.kind].needs_model else None
    relevant = queries.judged.relevant
    components, _ = study.search.components
    means = component_means(components, policy.k)[part.members] if components else None
    return Reference(
        top=queries.judged.top.scores,
        correct=queries.judged.correct,
        random=part.random_scores,
        kept=kept.sum(axis=1),
        correct_kept=queries.judged.accuracy(kept) > 0,
        relevance=relevance,
        correct_relevance=None if relevance is None else np.where(relevant, relevance, np.float32(0)).max(axis=1),
        components=means,
    )


def query_outcomes(study: Study, policy: PolicyRecord) -> Outcomes:
    """Collect the outcomes of the held-out queries (else the calibration queries) and of all unanswerable ones."""
    dataset, members = study.search.dataset, study.measured.members
    queries = study.scored.take(members)
    kept = queries.kept(policy.kind, policy.threshold)
    return Outcomes(
        query=_digests([dataset.answerable[row] for row in members.tolist()]),
        cluster=study.search.units.clusters[members],
        hit=queries.judged.accuracy() > 0,
        hit_kept=queries.judged.accuracy(kept) > 0,
        ndcg=queries.judged.ndcg(),
        ndcg_kept=queries.judged.ndcg(kept),
        kept=kept.sum(axis=1),
        unanswerable=_digests(dataset.unanswerable),
        unanswerable_kept=queries.unanswerable_kept(policy.kind, policy.threshold).sum(axis=1),
    )


def write_study(calibrated: Calibrated, release: Path) -> None:
    """Write what every release keeps of its study: models, the reference of drift, outcomes and evidence."""
    calibrated.write_models(release)
    drift_reference(calibrated, calibrated.policy).save(release / layout.REFERENCE)
    query_outcomes(calibrated, calibrated.policy).save(release / layout.OUTCOMES)
    evidence_of(calibrated).save(release / layout.EVIDENCE)


def golden_rows(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose the calibration queries that become golden ones, evenly spaced among the positions (q,) int64."""
    places = np.linspace(0, len(members) - 1, num=min(_GOLDEN_QUERIES, len(members))).astype(np.int64)
    rows: NDArray[np.int64] = members[np.unique(places)]
    return rows


def seen_hits(study: Study) -> NDArray[np.bool_]:
    """Return which answerable queries are hits, (q,) bool, without queries whose misses no user could have judged."""
    hits: NDArray[np.bool_] = study.scored.judged.accuracy() > 0
    dataset = study.search.dataset
    if dataset.other_queries is None:
        return hits
    return hits[[query.id not in dataset.other_queries.seen_only for query in dataset.answerable]]


def _digests(queries: Sequence[LabelledQuery]) -> NDArray[np.uint64]:
    """Digest the texts of queries, (q,) uint64; a release does not contain the texts."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def calibration_questions(calibrated: Calibrated) -> list[CalibrationQuestion]:
    """List the labelled questions, answerable ones first, then the off-topic ones that count for ρ.

    Of more than MAX_QUESTIONS labelled ones, as many are listed, evenly spaced.
    """
    kinds = (_answerable(calibrated), _unanswerable(calibrated), _off_topic(calibrated))
    return [question for kind in kinds if kind is not None for question in kind.questions()]


@dataclass(frozen=True)
class _Questions:
    """The n questions of a kind, of which those at `rows` are listed; see CalibrationQuestion."""

    kind: QuestionKind
    texts: Sequence[str]
    values: Float32  # (n, K) float32
    best: Float32  # (n,) float32
    refusal: Float32 | None  # (n,) float32, None if no question is refused
    rows: NDArray[np.int64]  # positions of the listed ones
    ranks: NDArray[np.int64] | None = None  # (n,) ranks from 1, 0 for none; None if no result is relevant
    right: Float32 | None = None  # (n,) float32; None with `ranks`
    heldout: Mask | None = None  # (n,) bool; None if none is held out

    def questions(self) -> Iterator[CalibrationQuestion]:
        """Make the records of the listed questions."""
        best = _shortest(self.best)
        refusal, right = (None if scores is None else _shortest(scores) for scores in (self.refusal, self.right))
        for row in map(int, self.rows):
            rank = 0 if self.ranks is None else int(self.ranks[row])
            values = self.values[row]
            yield CalibrationQuestion(
                text=self.texts[row],
                kind=self.kind,
                heldout=self.heldout is not None and bool(self.heldout[row]),
                values=_shortest(values[np.isfinite(values)]),
                best=best[row],
                refusal=refusal[row] if refusal else None,
                rank=rank or None,
                right=right[row] if right and rank else None,
            )


def _answerable(calibrated: Calibrated) -> _Questions:
    scored, dataset = calibrated.scored, calibrated.search.dataset
    relevant = scored.judged.relevant
    values = scored.decisions(calibrated.policy.kind)
    # The value of a relevant result may be the largest at any rank if it is a probability.
    right = np.where(relevant, values, np.float32(-np.inf)).max(axis=1)
    heldout = np.zeros(len(values), dtype=np.bool_)
    if "heldout" in calibrated.parts:
        heldout[calibrated.parts["heldout"].members] = True
    return _Questions(
        "answerable",
        [query.text for query in dataset.answerable],
        values,
        scored.judged.top.scores[:, 0],
        None if scored.answering is None else scored.answering.answerable,
        rows=_evenly(len(values), _share(calibrated, len(values))),
        ranks=np.where(relevant.any(axis=1), relevant.argmax(axis=1) + 1, 0),
        right=right,
        heldout=heldout,
    )


def _unanswerable(calibrated: Calibrated) -> _Questions:
    scored, queries = calibrated.scored, calibrated.search.dataset.unanswerable
    return _Questions(
        "unanswerable",
        [query.text for query in queries],
        scored.unanswerable_decisions(calibrated.policy.kind),
        scored.unanswerable.scores[:, :1].ravel(),
        None if scored.answering is None else scored.answering.unanswerable,
        rows=_evenly(len(queries), _share(calibrated, len(queries))),
    )


def _off_topic(calibrated: Calibrated) -> _Questions | None:
    """Return the questions about other subjects that count, those that chose nothing; None if none was searched."""
    search, refusal = calibrated.corpus, calibrated.refusal
    # A certified score other than the best similarity is not computed for these questions.
    if search is None or (refusal is not None and not refusal.record.is_default):
        return None
    if not search.dataset.off_topic:  # there is no encoder for them
        return None
    right = search.judged.top.scores[search.judged.accuracy() > 0, 0]
    asked: Mask = np.array([not (question.is_request or question.chooses) for question in search.dataset.off_topic])
    remaining = asked & search.off_topic_remaining(right)
    questions = search.off_topic.take(remaining)
    estimated = search.off_topic_relevance(calibrated.estimated)
    best = questions.top.scores[:, 0]
    return _Questions(
        "off_topic",
        [search.dataset.off_topic[row].text for row in np.flatnonzero(remaining).tolist()],
        POLICIES[calibrated.policy.kind].decide(
            questions.top.scores, None if estimated is None else estimated[remaining]
        ),
        best,
        None if refusal is None else best,
        rows=np.arange(len(best)),
    )


def _shortest(values: Float32) -> list[float]:
    """Return the shortest decimals that float32 reads as these values: nine digits fewer in every file and page."""
    return [float(text) for text in values.astype(str)]


def _share(calibrated: Calibrated, count: int) -> int:
    """Return how many of `count` labelled questions of a kind are listed."""
    dataset = calibrated.search.dataset
    total = len(dataset.answerable) + len(dataset.unanswerable)
    return min(count, MAX_QUESTIONS * count // total)


def _evenly(count: int, listed: int) -> NDArray[np.int64]:
    """Return `listed` of `count` positions, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, num=listed).astype(np.int64))


def evidence_of(calibrated: Calibrated) -> EvidenceFile:
    """Collect what the figures of the manifest can be recomputed from."""
    scored, search, refusal = calibrated.scored, calibrated.search, calibrated.refusal
    judged, answering, count = scored.judged, scored.answering, len(scored.judged)
    random = np.full(count, np.nan, dtype=np.float32)
    for part in calibrated.parts.values():
        random[part.members] = part.random_scores if len(part.random_scores) else np.nan
    answerable = AnswerableEvidence(
        cluster=search.units.clusters,
        scores=judged.top.scores,
        relevance=scored.relevance,
        refusal=None if answering is None else answering.answerable,
        role=_roles(calibrated),
        grades=judged.grades,
        ideal=judged.ideal,
        document=None if judged.documents is None else judged.documents.numbers,
        correct=judged.correct,
        random=None if np.isnan(random).any() else random,
    )
    unanswerable = QueryEvidence(
        cluster=search.cluster_ids[count:],
        scores=scored.unanswerable.scores,
        relevance=scored.unanswerable_relevance,
        refusal=None if answering is None else answering.unanswerable,
    )
    chosen = None if refusal is None else refusal.evidence
    planned = None if answering is None or answering.planned is None else float(answering.planned)
    return EvidenceFile(
        answerable=answerable,
        unanswerable=unanswerable,
        questions={kind: _question_evidence(questions) for kind, questions in _questions(calibrated).items()},
        zero=scored.shares,
        count_at_most=search.units.cap,
        planned_rho=planned,
        given_rho=chosen is not None and chosen.kept is not None and planned is None,
    )


def _roles(study: Study) -> str:
    """Return the role of each answerable query, a letter each; see AnswerableEvidence."""
    letters = np.full(len(study.scored.judged), "c")
    if study.roles is not None:
        letters[study.roles.fit] = "f"
    if "heldout" in study.parts:
        letters[study.parts["heldout"].members] = "h"
    return "".join(letters)


def _questions(calibrated: Calibrated) -> dict[RefusedKind, ScoredQuestions]:
    """Return the questions that ρ is measured on; without ρ, those about other subjects with their best values."""
    refusal = calibrated.refusal
    if refusal is not None and refusal.evidence is not None:
        return {**refusal.evidence.kinds}
    if calibrated.corpus is None or not calibrated.corpus.dataset.off_topic:
        return {}
    estimated = calibrated.corpus.off_topic_relevance(calibrated.estimated)
    values = POLICIES[calibrated.policy.kind].decide(calibrated.corpus.off_topic.top.scores, estimated)
    units = SamplingUnits.from_clusters(calibrated.corpus.off_topic.clusters)
    return {"off_topic": ScoredQuestions(values.max(axis=1), units, np.zeros(len(values), dtype=np.bool_))}


def _question_evidence(questions: ScoredQuestions) -> QuestionEvidence:
    fields = None if questions.fields is None else questions.fields.tolist()
    return QuestionEvidence(questions.scores, questions.units.clusters, questions.chooses.astype(np.int8), fields)
