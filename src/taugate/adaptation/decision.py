"""Decides whether to accept an adapted encoder, by the gate, on queries and documents unseen in training and choice.

NDCG@10 has to be higher than the base encoder's, and accuracy@K not lower by more than a margin. All recipes are tested
together, so that the p-values are corrected for their number (Holm).

Words and an adapted encoder improve partly the same queries, so an encoder that is better by the cosine may add nothing
to a score with a lexical share. If such a score is shown to be better with the base encoder, it is what the recipes
have to beat, with the best weight of the base encoder. Each recipe is tested with every weight, because cosines of
another encoder may be spread otherwise; this counts as so many candidates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from taugate.adaptation.measures import BASE
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.calibration.acceptance.accepted import LexicalPart
from taugate.calibration.acceptance.baseline import RankingOutcomes, SearchTrial
from taugate.calibration.acceptance.gate import GateCandidate, judge
from taugate.calibration.acceptance.lexical import GRID, PROVISIONAL_WEIGHT
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.recall import DeepFigures
from taugate.calibration.risk.paired import min_detectable_loss
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.settings import (
    MARGIN,
    CalibrationSettings,
    GateSettings,
    LexicalChoice,
    default_margin,
)
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.release.adaptation import AdaptationGain, BeforeAfter
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.search_records import GateRecord, PairedLoss

K = int(CalibrationSettings.fields()["k"].default)


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
        lexical_weight: Weights of the lexical share with the base encoder and with the chosen recipe; None if the score
            is the cosine.
    """

    gate: list[GateRecord]
    chosen: GateRecord
    accepted: bool
    reason: str | None
    recall: BeforeAfter
    trials: Mapping[str, SearchTrial]
    lexical_weight: BeforeAfter | None

    @property
    def gain(self) -> AdaptationGain:
        """Gains of the chosen recipe with their confidence limits."""
        return AdaptationGain(accuracy=_gain(self.chosen.accuracy), ndcg=_gain(self.chosen.ndcg))

    @classmethod
    def decide(cls, pairs: EncodedPairs, learned: LearnedRecipes, lexical: LexicalChoice) -> "EncoderDecision":
        """Search the complete corpus for each unseen query, with the base encoder and with each recipe, and test them.

        Args:
            pairs: Queries and documents, encoded by the base encoder.
            learned: Recipes to test.
            lexical: Weight of the lexical share, `off` or `auto`.
        """
        units = SamplingUnits.from_clusters(clusters(pairs.queries.unseen))
        base, weights = _weighted_base(pairs, lexical, units)
        searches = [
            (place, trial)
            for place, recipe in enumerate(learned.tried)
            for trial in _weighted(recipe.pairs.search_unseen(recipe.learned, K), base.lexical, weights)
        ]
        outcomes = [(learned.tried[place].name, trial.outcomes()) for place, trial in searches]
        tested = [*zip(searches, judge_adapted(base.outcomes(), outcomes, units), strict=True)]
        best = [
            max((test for test in tested if test[0][0] == place), key=lambda test: test[1].ndcg.candidate)
            for place in range(len(learned.tried))
        ]
        records, trials = [record for _, record in best], [trial for (_, trial), _ in best]
        position = learned.tried.index(learned.chosen)
        record, better = records[position], learned.chosen.ndcg > learned.base
        reason = None if record.admitted and better else _reason(record, units, better=better)
        before, after = (
            DeepFigures.measure(trial.queries, trial.vectors, trial.exact, trial.parents).recall
            for trial in (base, trials[position])
        )
        recall = BeforeAfter(before=before, after=after)
        searched = {BASE: base} | {recipe.name: trial for recipe, trial in zip(learned.tried, trials, strict=True)}
        used = trials[position].lexical
        weight = BeforeAfter(before=base.lexical.weight, after=used.weight) if base.lexical and used else None
        return cls(records, record, reason is None, reason, recall, searched, weight)


def _weighted_base(
    pairs: EncodedPairs, lexical: LexicalChoice, units: SamplingUnits
) -> tuple[SearchTrial, Sequence[float]]:
    """Return the search by the base encoder that recipes have to beat, and the weights to test them with.

    As in a calibration, `auto` takes the best weight that the gate accepts, or the default weight if the queries are
    generated. The weights are empty if the score is the cosine.
    """
    base = pairs.search_unseen(None, K)
    if lexical == "off":
        return base, ()
    words = LexicalIndex.of(document.encoded_text for document in pairs.corpus)
    weights = GRID if lexical == "auto" else (lexical,)
    judged = lexical == "auto" and pairs.queries.evidence == "human"
    if lexical == "auto" and not judged:
        weights = (PROVISIONAL_WEIGHT,)
    trials = _weighted(base, LexicalPart(words, weights[0]), weights)
    if not judged:
        return trials[0], weights
    outcomes = [(f"weight {weight:g}", trial.outcomes()) for weight, trial in zip(weights, trials, strict=True)]
    records = judge_adapted(base.outcomes(), outcomes, units)
    accepted = [(record.ndcg.candidate, place) for place, record in enumerate(records) if record.admitted]
    return (trials[max(accepted)[1]], weights) if accepted else (base, ())


def _weighted(trial: SearchTrial, lexical: LexicalPart | None, weights: Sequence[float]) -> list[SearchTrial]:
    """Return a search by the cosine with each weight of the lexical share, or itself if the score is the cosine."""
    if lexical is None:
        return [trial]
    vectors = hybrid_vectors(trial.vectors, (query.text for query in trial.queries))
    return [replace(trial, vectors=vectors, lexical=lexical._replace(weight=weight)) for weight in weights]


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
    if not better:
        return (
            "no recipe raises NDCG@10 of the validation queries; keep the base encoder, or learn from other pairs: "
            "label more queries, or give another --split"
        )
    return why_refused(record, units, "the base encoder")


def why_refused(record: GateRecord, units: SamplingUnits, instead: str) -> str:
    """State why the gate refuses what was trained, and what would help.

    Args:
        record: Record of the gate.
        units: Sampling units of the unseen queries.
        instead: What to keep.
    """
    gain, loss = -record.ndcg.loss.mean, record.accuracy.loss.mean
    if gain <= 0:
        return f"NDCG@10 falls by {-gain:.4f} on unseen queries; keep {instead}, or learn from more queries"
    if loss >= record.margin:
        return f"accuracy@{K} falls by {loss:.4f}, and {record.margin:g} is the margin; keep {instead}"
    shown = f"NDCG@10 rises by {gain:.4f} on {units.words}, which may be chance (p = {record.p_adjusted:.2g})"
    if record.accuracy.p > record.ndcg.p:
        shown = (
            f"accuracy@{K} may fall by {record.accuracy.loss.upper:.4f} (95 % limit, {units.words}), and "
            f"{record.margin:g} is the margin"
        )
    if record.queries_needed is None:
        return f"{shown}; more queries like these would not show it: keep {instead}"
    needed = math.ceil(record.queries_needed / 10) * 10
    return (
        f"{shown}; about {needed:,} unseen queries like these would show it, and there are {len(units):,}: label more"
    )
