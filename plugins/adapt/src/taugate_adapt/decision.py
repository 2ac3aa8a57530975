"""Decides whether to accept an adapted encoder, by the gate, on unseen queries; the papers' measures beside it.

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

import numpy as np

from taugate.calibration.acceptance.baseline import LexicalPart, SearchTrial
from taugate.calibration.acceptance.better_lists import GRID, PROVISIONAL_WEIGHT
from taugate.calibration.comparison.measures import (
    OtherTexts,
    ParaphrasedQueries,
    distances_record,
    general_set,
    power_law_record,
)
from taugate.calibration.metrics.embeddings import isotropy, separation
from taugate.calibration.metrics.inputs import DeepFigures, clusters, judge_queries
from taugate.calibration.settings import CalibrationSettings, LexicalChoice
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.measure import Resamples, measure
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.evidence.rules import CONFIDENCE, MARGIN, GateSettings, default_margin
from taugate.evidence.threshold.decide import bootstrap_threshold
from taugate.policy.arrays import Float32
from taugate.release.adaptation import AdaptationGain, BeforeAfter
from taugate.release.evidence import Estimate, Interval
from taugate.release.measures import EncoderRow, FamiliarityRecord, MeasuresRecord, SeparationRecord, SpectrumRecord
from taugate.release.search_records import GateRecord, PairedLoss
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import hybrid_vectors
from taugate_adapt.recipes import EncodedPairs, LearnedRecipes

BASE = "base"  # name of the base encoder in comparisons
_STREAM = 5  # random stream of the seed for random documents and bootstraps

K = int(CalibrationSettings.fields()["k"].default)


@dataclass(frozen=True)
class ComparedEncoders:
    """The encoders that are compared, on the corpus and its unseen queries.

    Attributes:
        trials: Searches of these queries by the base encoder, under "base", and by each recipe, under its name.
    """

    queries: Sequence[LabelledQuery]
    trials: Mapping[str, SearchTrial]
    k: int
    seed: int

    def measure(
        self, chosen: str, paraphrased: ParaphrasedQueries, before: OtherTexts, after: OtherTexts
    ) -> MeasuresRecord:
        """Compute the measures of the papers.

        Args:
            before: Vectors of these queries and of the general set by the base encoder.
            after: Vectors of these queries and of the general set by the chosen encoder.
        """
        general = general_set()
        first, second = self.trials[BASE].documents, self.trials[chosen].documents
        return MeasuresRecord(
            k=self.k,
            rows=[self.row(name, trial) for name, trial in self.trials.items()],
            separation=separation_record((first, before.passages), (second, after.passages)),
            familiarity=FamiliarityRecord(
                before=before.familiarity,
                after=after.familiarity,
                queries=before.paraphrases.shape[0],
                paraphrases=before.paraphrases.shape[1],
                source=paraphrased.source,
                writer=paraphrased.writer,
            ),
            spectrum=SpectrumRecord(
                before=power_law_record(first, self.seed), after=power_law_record(second, self.seed)
            ),
            forgetting=general.compare(
                general.judge(before.passages, before.questions), general.judge(after.passages, after.questions)
            ),
        )

    def row(self, name: str, trial: SearchTrial) -> EncoderRow:
        """Measure one encoder as calibration would: bootstraps, papers' τ, COE and ROE."""
        settings = CalibrationSettings(k=self.k, seed=self.seed)
        units = SamplingUnits.from_clusters(clusters(self.queries))
        rng = np.random.default_rng([self.seed, _STREAM])
        draw = Resamples.draw(rng, units, len(trial.documents), settings)
        judged = judge_queries(self.queries, trial.vectors, trial.exact, self.k, trial.parents)
        threshold = bootstrap_threshold(judged, draw.rows)
        random = trial.exact.score(trial.vectors, draw.random_documents[:, None])[:, 0]
        none = trial.exact.search(trial.vectors[:0], self.k)  # the gate's queries all have an answer
        metrics = measure(
            ScoredQueries(judged, none, None, None),
            random,
            draw,
            "similarity",
            np.float32(threshold.tau),
            settings.overlap_percentile,
        )
        if metrics.roe is None:
            raise AssertionError("random documents were scored")
        return EncoderRow(
            name=name,
            accuracy=_interval(metrics.accuracy),
            ndcg=_interval(metrics.ndcg),
            coe=_interval(metrics.coe),
            roe=_interval(metrics.roe),
            tau=threshold.tau,
            psi=threshold.psi,
            accuracy_at_tau=_interval(metrics.accuracy_at_tau),
            isotropy=isotropy(trial.documents),
        )


def separation_record(before: tuple[Float32, Float32], after: tuple[Float32, Float32]) -> SeparationRecord:
    """Measure Δ_M of the corpus.

    Args:
        before: (N, d) documents and (G, d) general passages by the base encoder.
        after: (N, d) documents and (G, d) general passages by the adapted encoder.
    """
    distances = [separation(*vectors) for vectors in (before, after)]
    records = [distances_record(each, general) for each, (_, general) in zip(distances, (before, after), strict=True)]
    return SeparationRecord(before=records[0], after=records[1], moved_away=float((distances[1] > distances[0]).mean()))


def _interval(estimate: Estimate) -> Interval:
    return Interval(mean=estimate.mean, lower=estimate.lower, upper=estimate.upper)


@dataclass(frozen=True)
class EncoderDecision:
    """The gate's decision.

    Attributes:
        reason: Why it is not accepted, with a remedy, None if it is.
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
        """Search the whole corpus for each unseen query, with the base encoder and each recipe, and test them."""
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
    """Test all recipes together, and return a record for each."""
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
    """State why the gate refuses what was trained, and what would help."""
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
