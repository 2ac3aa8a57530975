"""Decides whether to accept an adapted encoder, by the gate, on queries and documents unseen in training and choice.

NDCG@10 has to be higher than the base encoder's, and accuracy@K not lower by more than a margin. All recipes are tested
together, so that the p-values are corrected for their number (Holm).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.adaptation.measures import BASE
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.calibration.gate.baseline import RankingOutcomes, SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.documents import first_of_document, grades_of
from taugate.calibration.risk.paired import min_detectable_loss
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.settings import MARGIN, CalibrationSettings, GateSettings, default_margin
from taugate.retrieval.release.adaptation import AdaptationGain, BeforeAfter
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import GateRecord, PairedLoss

K = int(CalibrationSettings.fields()["k"].default)
_RECALL_DEPTH = 100


@dataclass(frozen=True)
class EncoderDecision:
    """The gate's decision.

    Attributes:
        gate: A record of each recipe tried.
        chosen: Record of the chosen recipe.
        accepted: Whether the chosen recipe is accepted.
        reason: Why it is not accepted, with a remedy, None if it is.
        recall: recall@100 of the unseen queries.
        trials: Searches of these queries by the base encoder, under "base", and by each recipe tried.
    """

    gate: list[GateRecord]
    chosen: GateRecord
    accepted: bool
    reason: str | None
    recall: BeforeAfter
    trials: Mapping[str, SearchTrial]

    @property
    def gain(self) -> AdaptationGain:
        """Gains of the chosen recipe with their confidence limits."""
        return AdaptationGain(accuracy=_gain(self.chosen.accuracy), ndcg=_gain(self.chosen.ndcg))

    @classmethod
    def decide(cls, pairs: EncodedPairs, learned: LearnedRecipes) -> "EncoderDecision":
        """Search the complete corpus for each unseen query, with the base encoder and with each recipe, and test them.

        Args:
            pairs: Queries and documents, encoded by the base encoder.
            learned: Recipes to test.
        """
        units = SamplingUnits.from_clusters(clusters(pairs.queries.unseen))
        base = pairs.search_unseen(None, K)
        trials = [recipe.pairs.search_unseen(recipe.learned, K) for recipe in learned.tried]
        outcomes = [(recipe.name, trial.outcomes()) for recipe, trial in zip(learned.tried, trials, strict=True)]
        records = judge_adapted(base.outcomes(), outcomes, units)
        position = learned.tried.index(learned.chosen)
        record, better = records[position], learned.chosen.ndcg > learned.base
        reason = None if record.admitted and better else _reason(record, units, better=better)
        recall = BeforeAfter(before=_recall(base, pairs), after=_recall(trials[position], pairs))
        searched = {BASE: base} | {recipe.name: trial for recipe, trial in zip(learned.tried, trials, strict=True)}
        return cls(records, record, reason is None, reason, recall, searched)


def judge_adapted(
    base: RankingOutcomes, tried: Sequence[tuple[str, RankingOutcomes]], units: SamplingUnits
) -> list[GateRecord]:
    """Test all recipes together, and return a record for each.

    Args:
        base: Outcomes of the q unseen queries with the base encoder.
        tried: Name of each recipe, and its outcomes of the same queries.
        units: Sampling units of the queries.
    """
    level = 1 - (1 - CONFIDENCE) / len(tried)
    gate = GateSettings(default_margin(MARGIN, min_detectable_loss(units, level)), CONFIDENCE)
    candidates = [GateCandidate(name, "adaptation", outcomes) for name, outcomes in tried]
    return judge(base, candidates, units, gate, superior=True)


def _gain(loss: PairedLoss) -> Interval:
    return Interval(mean=-loss.loss.mean, lower=-loss.loss.upper, upper=-loss.loss.lower)


def _reason(record: GateRecord, units: SamplingUnits, *, better: bool) -> str:
    """State why a recipe is not accepted, and what would help."""
    gain, loss = -record.ndcg.loss.mean, record.accuracy.loss.mean
    if not better:
        return (
            "no recipe raises NDCG@10 of the validation queries; keep the base encoder, or learn from other pairs: "
            "label more queries, or give another --split"
        )
    if gain <= 0:
        return f"NDCG@10 falls by {-gain:.4f} on unseen queries; keep the base encoder, or learn from more queries"
    if loss >= record.margin:
        return f"accuracy@{K} falls by {loss:.4f}, and {record.margin:g} is the margin; keep the base encoder"
    shown = f"NDCG@10 rises by {gain:.4f} on {units.words}, which may be chance (p = {record.p_adjusted:.2g})"
    if record.accuracy.p > record.ndcg.p:
        shown = (
            f"accuracy@{K} may fall by {record.accuracy.loss.upper:.4f} (95 % limit, {units.words}), and "
            f"{record.margin:g} is the margin"
        )
    if record.queries_needed is None:
        return f"{shown}; more queries like these would not show it: keep the base encoder"
    needed = math.ceil(record.queries_needed / 10) * 10
    return (
        f"{shown}; about {needed:,} unseen queries like these would show it, and there are {len(units):,}: label more"
    )


def _recall(trial: SearchTrial, pairs: EncodedPairs) -> float:
    """Return mean recall@100: the share of relevant documents among the first 100 passages of a query."""
    positions = trial.exact.search(trial.vectors, min(_RECALL_DEPTH, len(trial.documents))).positions
    relevant = grades_of(trial.queries, positions, pairs.parents) >= 1
    if pairs.parents is not None:
        relevant = first_of_document(pairs.parents[positions], relevant)
    return float(np.mean(relevant.sum(axis=1) / [len(query.relevant) for query in trial.queries]))
