"""The recipes in order of cost, each begun from the best one before it and chosen by NDCG@10 of validation queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from taugate.adaptation.linear import LinearMap
from taugate.adaptation.pairs import AdaptationQueries
from taugate.adaptation.parts import TRAIN
from taugate.adaptation.settings import Recipe
from taugate.adaptation.whitening import CENTRINGS, EXPONENTS, PrincipalComponents
from taugate.calibration.gate.baseline import DEPTH, SearchTrial
from taugate.calibration.metrics.documents import Parents, relevant_passages
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.adaptation import CurvePoint, RecipeName, WhiteningRecord
from taugate.retrieval.vectors.similarity import Float32

_STREAM = 3  # of the seed, for the pairs of the adapter


@dataclass(frozen=True)
class EncodedPairs:
    """The vectors of an adaptation by the base encoder.

    queries: what they are of; documents: (N, d); train, validation, unseen: (n, d) float32, of the queries; parents: of
    the corpus.
    """

    queries: AdaptationQueries
    documents: Float32
    train: Float32
    validation: Float32
    unseen: Float32
    parents: Parents

    def ndcg(self, learned: LinearMap | None) -> float:
        """Return NDCG@10 of the validation queries in the whole corpus; learned: None for the base encoder."""
        trial = search_trial(self.queries.validation, self.validation, self.documents, learned, DEPTH, self.parents)
        return float(trial.outcomes().ndcg.mean())


def search_trial(
    queries: Sequence[LabelledQuery],
    vectors: Float32,
    documents: Float32,
    learned: LinearMap | None,
    k: int,
    parents: Parents,
) -> SearchTrial:
    """Prepare queries and documents to be searched through a map.

    queries: q of them; vectors: (q, d) and documents: (N, d) float32, by the base encoder; learned: None for the base
    encoder itself; k: results asked for; parents: of the corpus.
    """
    if learned is not None:
        vectors, documents = learned.apply(vectors), learned.apply(documents)
    return SearchTrial.build(queries, vectors, documents, k, parents)


@dataclass(frozen=True)
class TriedRecipe:
    """A recipe at its best on the validation queries.

    name: of the recipe; learned: its map, all recipes before it included; ndcg: NDCG@10 of the validation queries.
    """

    name: RecipeName
    learned: LinearMap
    ndcg: float


@dataclass(frozen=True)
class LearnedRecipes:
    """What came of the recipes.

    tried: in order; chosen: of these, the one that is kept; whitening: that every recipe begins with; steps: gradient
    steps that the budget allowed; base: NDCG@10 of the base encoder on the validation queries; curve: of every
    candidate.
    """

    tried: list[TriedRecipe]
    chosen: TriedRecipe
    whitening: WhiteningRecord
    steps: int
    base: float
    curve: list[CurvePoint]

    @classmethod
    def climb(
        cls,
        pairs: EncodedPairs,
        recipe: Recipe,
        seed: int,
        steps: int | Callable[[], float],
        say: Callable[[str], None],
    ) -> Self:
        """Whiten, and learn the adapter on top of that, as far as the recipe and the time allow.

        pairs: encoded queries and documents; recipe: what is asked for; seed: of the pairs; steps: gradient steps of
        the adapter, or a function that returns the seconds that are left, which then decide; say: told a line of
        progress at a time.
        """
        base = pairs.ndcg(None)
        curve = [CurvePoint(recipe="base", ndcg=base)]
        say(f"base: NDCG@10 {base:.4f} on {len(pairs.validation):,} validation queries")
        settings, best = _whiten(pairs, curve)
        say(f"whitening: NDCG@10 {best.ndcg:.4f} (centring {settings.centring:g}, exponent {settings.exponent:g})")
        tried, made = [best], 0
        if recipe != "whitening":
            adapted, made = _adapt(pairs, best, seed, steps, curve)
            if adapted is None:
                say("adapter: left out, as the budget is spent; give a larger --budget")
            else:
                say(f"adapter: NDCG@10 {adapted.ndcg:.4f} after {made} steps at most")
                tried.append(adapted)
                if recipe == "adapter" or adapted.ndcg > best.ndcg:
                    best = adapted
        return cls(tried, best, settings, made, base, curve)


def _whiten(pairs: EncodedPairs, curve: list[CurvePoint]) -> tuple[WhiteningRecord, TriedRecipe]:
    """Choose the exponent with the mean subtracted, and then how much of the mean is; the earlier of equal ones."""
    corpus = pairs.documents[pairs.queries.parts.passages(TRAIN)]
    components = PrincipalComponents.fit(np.concatenate([corpus, pairs.train]))
    found: dict[WhiteningRecord, TriedRecipe] = {}

    def best_of(candidates: list[WhiteningRecord]) -> WhiteningRecord:
        for each in candidates:
            if each not in found:
                learned = components.whitening(each)
                found[each] = TriedRecipe("whitening", learned, pairs.ndcg(learned))
                curve.append(CurvePoint(recipe="whitening", whitening=each, ndcg=found[each].ndcg))
        return max(found, key=lambda each: found[each].ndcg)

    first = best_of([WhiteningRecord(centring=CENTRINGS[0], exponent=exponent) for exponent in EXPONENTS])
    rest = [WhiteningRecord(centring=each, exponent=first.exponent) for each in CENTRINGS]
    chosen = best_of([each for each in rest if (each.centring, each.exponent) != (0.0, 0.0)])  # which changes nothing
    return chosen, found[chosen]


def _adapt(
    pairs: EncodedPairs, start: TriedRecipe, seed: int, steps: int | Callable[[], float], curve: list[CurvePoint]
) -> tuple[TriedRecipe | None, int]:
    """Learn the adapter on top of a whitening; returns it at its best step, and how many steps were allowed."""
    from taugate.adaptation.adapter import ContrastivePairs, fit, steps_within  # imports PyTorch

    allowed = pairs.queries.parts.passages(TRAIN)
    documents = start.learned.apply(pairs.documents[allowed])
    relevant = [np.searchsorted(allowed, each) for each in relevant_passages(pairs.queries.train, pairs.parents)]
    rng = np.random.default_rng([seed, _STREAM])
    drawn = ContrastivePairs.draw(start.learned.apply(pairs.train), relevant, documents, rng)
    most = steps if isinstance(steps, int) else steps_within(drawn, steps())
    best: TriedRecipe | None = None
    for each in fit(drawn, most):
        learned = start.learned.then(each.weight)
        tried = TriedRecipe("adapter", learned, pairs.ndcg(learned))
        curve.append(CurvePoint(recipe="adapter", step=each.step, loss=each.loss, ndcg=tried.ndcg))
        best = tried if best is None or tried.ndcg > best.ndcg else best
    return best, most
