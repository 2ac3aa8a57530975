"""Judges a second stage: it has to raise NDCG@10 without losing accuracy@K, nor the power to tell unanswerable queries.

A calibration judges by all labelled queries, as for the lexical share; a reranker is not fitted on them. An adaptation
judges by those about unseen documents. Of two stages, the second one costs more, so it has to be better. Whether the
best score tells answerable from unanswerable queries is measured by AUROC, the share of pairs of both kinds in the
right order: the loss of an unanswerable query is the difference between the stages in the share of answerable queries
that score higher than it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from taugate.calibration.acceptance.baseline import RankingOutcomes
from taugate.calibration.acceptance.gate import GateCandidate, judge
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits
from taugate.calibration.metrics.documents import Parents
from taugate.calibration.risk.paired import min_detectable_loss, paired_losses
from taugate.calibration.settings.settings import MARGIN, WIDEST_MARGIN, GateSettings, default_margin
from taugate.ingestion.dataset.labelled_query import LabelledQuery
from taugate.retrieval.encoder.bert import Precision
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.search_records import GateRecord, PairedLoss
from taugate.retrieval.release.second_stage import candidate_name
from taugate.retrieval.vectors.similarity import Float32


class StageResults(NamedTuple):
    """The candidates of the labelled queries in the order of one stage, by its scores.

    Attributes:
        answerable: (n, N) candidates.
        unanswerable: (u, N) candidates.
    """

    answerable: TopK
    unanswerable: TopK


class CheaperStage(NamedTuple):
    """A second stage that costs less than another one: in a cheaper precision, or with fewer candidates.

    Attributes:
        precision: Its precision.
        gain: What it saves, as in `GateCandidate`.
        processor: Instructions of the processor that the gain was measured with.
    """

    precision: Precision
    gain: dict[str, float]
    processor: str | None


@dataclass(frozen=True)
class JudgedStage:
    """The verdict on a second stage.

    Attributes:
        record: The gate's record.
        separation: AUROC of both stages; None without unanswerable queries.
    """

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
    """The queries that judge a second stage.

    Attributes:
        answerable: The n answerable queries.
        parents: Parents of the corpus.
        units: Sampling units of the answerable queries.
        unanswerable: Sampling units of the u unanswerable queries; None without any.
        k: K of accuracy@K.
        gate: The requested margin, None for the default, and the confidence.
    """

    answerable: Sequence[LabelledQuery]
    parents: Parents
    units: SamplingUnits
    unanswerable: SamplingUnits | None
    k: int
    gate: GateSettings

    def outcomes(self, top: TopK) -> RankingOutcomes:
        """Return the outcomes of the answerable queries, given their (n, N) candidates in the order of a stage."""
        return RankingOutcomes.judge(self.answerable, top.positions, self.k, self.parents)

    def judge(
        self, name: str, stages: tuple[StageResults, StageResults], cheaper: CheaperStage | None = None
    ) -> JudgedStage:
        """Compare a second stage with the first one alone, or a cheaper one with what it would replace.

        Args:
            name: Name of the reranker.
            stages: Results of the first stage, or of what a cheaper second stage would replace, and of the second one.
            cheaper: What is cheaper, which must not be worse; None for a second stage that has to be better than the
                first.
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
