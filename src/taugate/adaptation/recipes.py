"""The recipes in order of cost, each begun from the best one before it and chosen by NDCG@10 of validation queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.linear.whitening import CENTRINGS, EXPONENTS, PrincipalComponents
from taugate.adaptation.pairs.negatives import PairedTexts
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.parts import TRAIN
from taugate.adaptation.settings import Recipe
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.gate.baseline import DEPTH, SearchTrial
from taugate.calibration.metrics.clusters import PerQuery
from taugate.calibration.metrics.documents import Parents, relevant_passages
from taugate.calibration.progress import Stopwatch
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import CurvePoint, RecipeName, TrainingRecord, WhiteningRecord
from taugate.retrieval.vectors.similarity import Float32

_STREAM = 3  # of the seed, for the pairs of the adapter


@dataclass(frozen=True)
class EncodedPairs:
    """Documents and queries, encoded.

    Attributes:
        queries: The queries of each part.
        documents: (N, d).
        train: (n, d) float32 vectors of the queries.
        validation: (n, d) float32 vectors of the queries.
        unseen: (n, d) float32 vectors of the queries.
        corpus: The documents themselves.
    """

    queries: AdaptationQueries
    documents: Float32
    train: Float32
    validation: Float32
    unseen: Float32
    corpus: DocumentStore

    @classmethod
    def encode(
        cls,
        corpus: DocumentStore,
        queries: AdaptationQueries,
        encoder: OnnxEncoder,
        cache: EmbeddingCache,
        watch: Stopwatch,
    ) -> Self:
        """Encode documents and queries, or read their embeddings from a cache.

        Args:
            corpus: The documents.
            queries: Of the three parts.
            encoder: That embeds.
            cache: Of this encoder.
            watch: Shows the progress.
        """

        def of_queries(asked: Sequence[LabelledQuery]) -> Float32:
            return encode(encoder, (query.text for query in asked), len(asked), "query", cache, watch).vectors

        texts = (document.encoded_text for document in corpus)
        documents = encode(encoder, texts, len(corpus), "document", cache, watch).vectors
        train, validation, unseen = (of_queries(each) for each in (queries.train, queries.validation, queries.unseen))
        return cls(queries, documents, train, validation, unseen, corpus)

    @property
    def parents(self) -> Parents:
        """Return the first chunk of each passage's document, (N,) int32; None where the corpus has no chunks."""
        return self.corpus.parents

    def paired_texts(self, learned: LinearMap | None) -> PairedTexts:
        """Return the training queries and documents through a map.

        Args:
            learned: The map.
        """
        allowed = self.queries.parts.passages(TRAIN)
        return PairedTexts(
            self.train if learned is None else learned.apply(self.train),
            [query.text for query in self.queries.train],
            [np.searchsorted(allowed, each) for each in relevant_passages(self.queries.train, self.parents)],
            self.documents[allowed] if learned is None else learned.apply_to_documents(self.documents[allowed]),
            [self.corpus[position].encoded_text for position in allowed.tolist()],
        )

    def validate(self, learned: LinearMap | None) -> PerQuery:
        """Return NDCG@10 of each validation query in the whole corpus.

        Args:
            learned: None for the base encoder.
        """
        trial = search_trial(self.queries.validation, self.validation, self.documents, learned, DEPTH, self.parents)
        return trial.outcomes().ndcg


def search_trial(
    queries: Sequence[LabelledQuery],
    vectors: Float32,
    documents: Float32,
    learned: LinearMap | None,
    k: int,
    parents: Parents,
) -> SearchTrial:
    """Prepare queries and documents to be searched through a map.

    Args:
        queries: q of them.
        vectors: (q, d) and documents: (N, d) float32, by the base encoder.
        learned: None for the base encoder itself.
        k: Results asked for.
        parents: Of the corpus.
    """
    if learned is not None:
        vectors, documents = learned.apply(vectors), learned.apply_to_documents(documents)
    return SearchTrial.build(queries, vectors, documents, k, parents)


@dataclass(frozen=True)
class TriedRecipe:
    """A recipe at its best on the validation queries.

    Attributes:
        name: Of the recipe.
        learned: Its map, all recipes before it included, None for none.
        per_query: (v,) float64, NDCG@10 of each validation query.
        whitening: In the map.
        pairs: Encoded by its transformer.
        transformer: Folder of a model whose weights were trained, None where they are those of the base.
        merge_weight: Of the trained weights.
    """

    name: RecipeName
    learned: LinearMap | None
    per_query: PerQuery
    whitening: WhiteningRecord | None
    pairs: EncodedPairs
    transformer: Path | None = None
    merge_weight: float | None = None

    @property
    def documents(self) -> Float32:
        """Return the documents as this encoder has them, (N, d) float32 of unit length."""
        documents = self.pairs.documents
        return documents if self.learned is None else self.learned.apply_to_documents(documents)

    @property
    def ndcg(self) -> float:
        """Return the mean over the validation queries."""
        return float(self.per_query.mean())


@dataclass(frozen=True)
class LearnedRecipes:
    """What came of the recipes.

    Attributes:
        tried: In order.
        chosen: Of these, the one that is kept.
        steps: Gradient steps of the adapter that the budget allowed.
        base: NDCG@10 of the base encoder on the validation queries.
        curve: Of every candidate.
        training: Of what went through the encoder, None where nothing was to.
    """

    tried: list[TriedRecipe]
    chosen: TriedRecipe
    steps: int
    base: float
    curve: list[CurvePoint]
    training: TrainingRecord | None = None

    @classmethod
    def climb(
        cls,
        pairs: EncodedPairs,
        recipe: Recipe,
        seed: int,
        steps: int | Callable[[], float],
        say: Callable[[str], None],
        *,
        keep_documents: bool = False,
    ) -> Self:
        """Whiten, and learn the adapter on top of that, as far as the recipe and the time allow.

        Args:
            pairs: Encoded queries and documents.
            recipe: What is asked for.
            seed: Of the pairs.
            steps: Gradient steps of the adapter, or a function that returns the seconds that are left, which then
                decide.
            say: Told a line of progress at a time.
            keep_documents: Learn the adapter for queries alone, without whitening.

        Raises:
            InputError: Where that leaves nothing.
        """
        before = pairs.validate(None)
        base = float(before.mean())
        curve = [CurvePoint(recipe="base", ndcg=base)]
        say(f"base: NDCG@10 {base:.4f} on {len(pairs.validation):,} validation queries")
        if keep_documents:
            start = LinearMap.identity_of_queries(pairs.documents.shape[1])
            adapted, made = _adapt(pairs, TriedRecipe("adapter", start, before, None, pairs), seed, steps, curve)
            if adapted is None:
                raise InputError(f"the adapter cannot be learned: {_why_none(made)}")
            say(f"adapter of queries: NDCG@10 {adapted.ndcg:.4f} after {made} steps at most")
            return cls([adapted], adapted, made, base, curve)
        settings, best = _whiten(pairs, curve)
        say(f"whitening: NDCG@10 {best.ndcg:.4f} (centring {settings.centring:g}, exponent {settings.exponent:g})")
        tried, made = [best], 0
        if recipe != "whitening":
            adapted, made = _adapt(pairs, best, seed, steps, curve)
            if adapted is None:
                say(f"warning: the adapter is left out: {_why_none(made)}")
            else:
                say(f"adapter: NDCG@10 {adapted.ndcg:.4f} after {made} steps at most")
                tried.append(adapted)
                if recipe == "adapter" or adapted.ndcg > best.ndcg:
                    best = adapted
        return cls(tried, best, made, base, curve)


def _why_none(steps: int) -> str:
    """Say why there is no adapter.

    Args:
        steps: That the budget allowed.
    """
    return "its loss is no number" if steps else "the budget is spent; give a larger --budget"


def _whiten(pairs: EncodedPairs, curve: list[CurvePoint]) -> tuple[WhiteningRecord, TriedRecipe]:
    """Choose the exponent with the mean subtracted, and then how much of the mean is.

    Of the exponents it is the smallest within one standard error of the best (Breiman et al., Classification and
    Regression Trees, 1984, §3.4.3): crops repeat the words of their document, and so reward more whitening than the
    questions of people do.
    """
    corpus = pairs.documents[pairs.queries.parts.passages(TRAIN)]
    components = PrincipalComponents.fit(np.concatenate([corpus, pairs.train]))

    def tried(centring: float, exponent: float) -> tuple[WhiteningRecord, TriedRecipe]:
        settings = WhiteningRecord(centring=centring, exponent=exponent)
        learned = components.whitening(settings)
        found = TriedRecipe("whitening", learned, pairs.validate(learned), settings, pairs)
        curve.append(CurvePoint(recipe="whitening", whitening=settings, ndcg=found.ndcg))
        return settings, found

    exponents = [tried(CENTRINGS[0], exponent) for exponent in EXPONENTS]
    best = max((found for _, found in exponents), key=lambda each: each.ndcg)
    first = next(each for each in exponents if _within_one_error(each[1], best))
    if first[0].exponent == 0:  # without a part of the mean nothing would change
        return first
    return max([first, *(tried(share, first[0].exponent) for share in CENTRINGS[1:])], key=lambda each: each[1].ndcg)


def _within_one_error(recipe: TriedRecipe, best: TriedRecipe) -> bool:
    """Tell whether a recipe is below the best by no more than the standard error of the difference, by query."""
    differences = best.per_query - recipe.per_query
    return bool(differences.mean() <= differences.std(ddof=1) / np.sqrt(len(differences)))


def _adapt(
    pairs: EncodedPairs, start: TriedRecipe, seed: int, steps: int | Callable[[], float], curve: list[CurvePoint]
) -> tuple[TriedRecipe | None, int]:
    """Learn the adapter on top of a map; returns it at its best step, and how many steps were allowed.

    Args:
        start: With the map, a whitening or the identity, which says whether documents pass the adapter.
    """
    from taugate.adaptation.linear.adapter import ContrastivePairs, fit, steps_within  # imports PyTorch

    first = start.learned
    assert first is not None  # noqa: S101 (for the type: it begins from a map)
    rng = np.random.default_rng([seed, _STREAM])
    drawn = ContrastivePairs.draw(pairs.paired_texts(first), rng, keeps_documents=first.keeps_documents)
    most = steps if isinstance(steps, int) else steps_within(drawn, steps())
    best: TriedRecipe | None = None
    for each in fit(drawn, most):
        learned = first.then(each.weight)
        tried = replace(start, name="adapter", learned=learned, per_query=pairs.validate(learned))
        curve.append(CurvePoint(recipe="adapter", step=each.step, loss=each.loss, ndcg=tried.ndcg))
        best = tried if best is None or tried.ndcg > best.ndcg else best
    return best, most
