"""Judges what shall make the list better: a lexical share of the score, and a second stage.

Adds a lexical share to the score if the gate shows that it makes the list better. The score becomes cosine + weight ·
share (`retrieval/index/lexical.py`). Each weight of a small grid answers the same queries as the cosine alone, and has
to raise NDCG@10 without losing accuracy@K; Holm's method keeps the chance that a weight that does not help is accepted
below 1 − confidence. Of the accepted weights the largest is taken, so no query has a say in that choice. All labelled
queries decide which are accepted, also those that certify a loss; certificates hold as often as for a weight that was
fixed before (docs/gate.md).

The lexical share claims to be better, and cheaper candidates claim to lose little. They are separate decisions, so the
lexical share takes nothing from the error of the cheaper candidates, which are compared with the score chosen here.

Judges a second stage: it has to raise NDCG@10 without losing accuracy@K, nor the power to tell unanswerable queries. A
calibration judges by all labelled queries, as for the lexical share; a reranker is not fitted on them. An adaptation
judges by those about unseen documents. Of two stages, the second one costs more, so it has to be better. Whether the
best score tells answerable from unanswerable queries is measured by AUROC, the share of pairs of both kinds in the
right order: the loss of an unanswerable query is the difference between the stages in the share of answerable queries
that score higher than it does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from taugate.calibration.acceptance.baseline import GateState, LexicalPart
from taugate.calibration.encoding.corpus import with_words
from taugate.calibration.metrics.inputs import CalibrationInputs, ranking_outcomes
from taugate.calibration.provisional import AvailableEvidence
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, gate_line, judge
from taugate.evidence.clusters import PerQuery, SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING
from taugate.evidence.ranking import Parents
from taugate.evidence.risk.losses import min_detectable_loss, paired_losses
from taugate.evidence.rules import MARGIN, WIDEST_MARGIN, GateSettings, default_margin
from taugate.policy.arrays import Float32
from taugate.release.encoder import Precision
from taugate.release.evidence import Interval
from taugate.release.search_records import GateRecord, PairedLoss, candidate_name
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import TopK

# Ascending. Smaller weights gain less, larger ones hardly more, on seven data sets (benchmarks/results/hybrid.md).
GRID = (0.3, 0.5, 0.7, 1.0)
# Queries made from documents share words with them, so they always choose the largest weight, even if people's queries
# lose by it. This is the largest weight that loses on none of seven data sets (benchmarks/results/hybrid.md).
PROVISIONAL_WEIGHT = 0.2

# Returns the outcomes of exact search by the score with a lexical part, or by the cosine for None.
Outcomes = Callable[[LexicalPart | None], RankingOutcomes]


def add_lexical(state: GateState, inputs: CalibrationInputs) -> tuple[list[GateRecord], GateState]:
    """Choose the lexical part of the score for a search in this process.

    Args:
        state: Exact search of the float32 encoder's vectors.

    Returns:
        The records, and the new state, or `state` itself if the score stays the cosine.
    """
    if inputs.settings.candidates.lexical == "off":
        return [], state
    worded = state.with_encoded(with_words(state.accepted.encoded, inputs.dataset))

    def outcomes(lexical: LexicalPart | None) -> RankingOutcomes:
        return (state if lexical is None else worded.with_lexical(lexical)).trial.outcomes()

    records, lexical = choose_lexical(inputs, outcomes)
    return records, state if lexical is None else worded.with_lexical(lexical)


def choose_lexical(inputs: CalibrationInputs, outcomes: Outcomes) -> tuple[list[GateRecord], LexicalPart | None]:
    """Index the words of the documents, and choose the weight of the lexical share.

    A weight that the settings give is used as it is, and only judged. Without enough evidence by people, `auto` uses
    the default weight.

    Args:
        inputs: The data set and the settings, in which the share is not off.
        outcomes: Returns the outcomes of exact search by the score with a lexical part, or by the cosine for None.

    Returns:
        The records, and the lexical part, None if the score stays the cosine.
    """
    dataset, settings, job = inputs.dataset, inputs.settings, inputs.job
    words = LexicalIndex.of(document.encoded_text for document in dataset.documents)
    choice = settings.candidates.lexical
    given = None if isinstance(choice, str) else choice
    if given is None and AvailableEvidence.count(dataset, settings.k).reasons:
        job.report(f"lexical weight {PROVISIONAL_WEIGHT:g}, the default without enough queries by people to choose one")
        return [], LexicalPart(words, PROVISIONAL_WEIGHT)
    if given is not None and len(inputs.drawn.parts["calibration"].members) < MIN_CALIBRATING:
        job.report(f"lexical weight {given:g}, as given; there are too few queries to judge it")
        return [], LexicalPart(words, given)
    parts = [LexicalPart(words, weight) for weight in (GRID if given is None else (given,))]
    records, chosen = _judged(parts, given, inputs, outcomes)
    as_given = "" if given is None else f"lexical weight {given:g}, as given; "
    job.report(as_given + _line(records, chosen))
    return records, chosen


def _judged(
    parts: Sequence[LexicalPart], given: float | None, inputs: CalibrationInputs, outcomes: Outcomes
) -> tuple[list[GateRecord], LexicalPart | None]:
    """Judge weights by all labelled queries, and use the given one, or the largest accepted one if there is any.

    Args:
        given: Weight that is used whatever the records say; None for the largest accepted one.
    """
    measured = [outcomes(part) for part in parts]
    candidates = [GateCandidate(_name(part), "lexical", outcome) for part, outcome in zip(parts, measured, strict=True)]
    requested, units = inputs.settings.candidates.gate, inputs.units
    confidence = requested.confidence
    detectable = min_detectable_loss(units, 1 - (1 - confidence) / len(candidates))
    gate = GateSettings(requested.margin or default_margin(MARGIN, detectable), confidence)
    records = judge(outcomes(None), candidates, units, gate, superior=True)
    if given is not None:
        return records, parts[0]
    accepted = [place for place, record in enumerate(records) if record.admitted]
    if not accepted:
        return records, None
    return records, parts[max(accepted)]


def _line(records: Sequence[GateRecord], lexical: LexicalPart | None) -> str:
    """Return the progress line of the weight that is used, or of the best one if none is."""
    if lexical is None:
        best = max(records, key=lambda record: record.ndcg.candidate)
        return f"lexical share: off, because no weight is shown to help; {gate_line(best)}"
    (used,) = (record for record in records if record.candidate == _name(lexical))
    return gate_line(used)


def _name(lexical: LexicalPart) -> str:
    return f"lexical share, weight {lexical.weight:g}"


class StageResults(NamedTuple):
    """The candidates of the labelled queries in the order of one stage, by its scores."""

    answerable: TopK  # (n, N) candidates
    unanswerable: TopK  # (u, N) candidates


class CheaperStage(NamedTuple):
    """A second stage that costs less than another one: in a cheaper precision, or with fewer candidates."""

    precision: Precision
    gain: dict[str, float]
    processor: str | None  # instructions of the processor that the gain was measured with


@dataclass(frozen=True)
class JudgedStage:
    """The verdict on a second stage."""

    record: GateRecord
    separation: PairedLoss | None

    @property
    def worse_separation(self) -> str | None:
        """AUROC of both stages in words, if the stage is refused for it although the results are better; else None."""
        better = self.record.p_adjusted <= 1 - self.record.confidence
        if self.record.admitted or self.separation is None or not better:
            return None
        return f"the second one may tell unanswerable queries worse: {separation_in_words(self.separation)}"


@dataclass(frozen=True)
class JudgingQueries:
    """The queries that judge a second stage."""

    answerable: Sequence[LabelledQuery]
    parents: Parents
    units: SamplingUnits
    unanswerable: SamplingUnits | None  # sampling units of the u unanswerable queries; None without any
    k: int
    gate: GateSettings  # the requested margin, None for the default, and the confidence

    def outcomes(self, top: TopK) -> RankingOutcomes:
        """Return the outcomes of the answerable queries, given their (n, N) candidates in the order of a stage."""
        return ranking_outcomes(self.answerable, top.positions, self.k, self.parents)

    def judge(
        self, name: str, stages: tuple[StageResults, StageResults], cheaper: CheaperStage | None = None
    ) -> JudgedStage:
        """Compare a second stage with the first one alone, or a cheaper one with what it would replace.

        Args:
            stages: Results of the first stage, or of what a cheaper second stage would replace, and of the second
                one.
            cheaper: What is cheaper, which must not be worse; None for a second stage that has to be better than
                the first.
        """
        before, after = stages
        requested, confidence = self.gate.margin, self.gate.confidence
        margin = requested or default_margin(MARGIN, min_detectable_loss(self.units, confidence))
        size, precision = after.answerable.scores.shape[1], "float32" if cheaper is None else cheaper.precision
        candidate = GateCandidate(candidate_name(name, size, precision), "rerank", self.outcomes(after.answerable))
        if cheaper is not None:
            candidate = replace(candidate, gain=cheaper.gain, processor=cheaper.processor)
        gate, first = GateSettings(margin, confidence), self.outcomes(before.answerable)
        (record,) = judge(first, [candidate], self.units, gate, superior=cheaper is None)
        if self.unanswerable is None:
            return JudgedStage(record, None)
        separation, limit = _separation(before, after, self.unanswerable, requested, confidence)
        if record.admitted and limit is not None and separation.loss.upper > limit:
            verdict = "worse" if separation.loss.mean >= limit else "cannot tell"
            record = record.model_copy(update={"admitted": False, "verdict": verdict, "statement": None})
        return JudgedStage(record, separation)


def _separation(
    first: StageResults, second: StageResults, units: SamplingUnits, margin: float | None, confidence: float
) -> tuple[PairedLoss, float | None]:
    """Measure AUROC of both stages.

    Returns:
        The measurement, and the margin that its upper limit must not pass; None if so few unanswerable queries cannot
        show any loss that matters, so that they do not decide.
    """
    before, after = _below(first), _below(second)
    losses = paired_losses(before - after, units)
    detectable = min_detectable_loss(units, confidence)
    limit = margin or default_margin(MARGIN, detectable)
    loss = Interval(mean=losses.mean, lower=losses.lower_limit(confidence), upper=losses.upper_limit(confidence))
    measured = PairedLoss(
        baseline=float(before.mean()), candidate=float(after.mean()), loss=loss, p=losses.p_value(limit)
    )
    return measured, None if detectable > WIDEST_MARGIN else limit


def _below(results: StageResults) -> PerQuery:
    """Return for each unanswerable query the share of answerable ones with a higher best score; ties count half."""
    answerable = np.sort(_best(results.answerable))
    scores = _best(results.unanswerable)
    lower, upper = (np.searchsorted(answerable, scores, side=side) for side in ("left", "right"))
    share: PerQuery = 1 - (lower + upper) / (2 * len(answerable))
    return share


def _best(top: TopK) -> Float32:
    best: Float32 = top.scores[:, 0]
    return best


def separation_in_words(separation: PairedLoss) -> str:
    """Return the measurement as a part of a sentence."""
    return (
        f"AUROC of the best score, answerable against unanswerable, {separation.candidate:.3f} (first stage "
        f"{separation.baseline:.3f}, loss ≤ {separation.loss.upper:+.3f})"
    )
