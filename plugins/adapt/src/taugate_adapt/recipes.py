"""Linear recipes in order of cost, starting from the best previous one and chosen by NDCG@10 of validation queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.metrics.inputs import relevant_passages
from taugate.calibration.progress import Job
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError
from taugate.evidence.acceptance import DEPTH
from taugate.evidence.clusters import PerQuery
from taugate.evidence.ranking import Parents
from taugate.policy.arrays import Float32
from taugate.release.adaptation import RecipeName, RecipeTrial, TrainingRecord, WhiteningRecord
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate_adapt.linear import CENTRINGS, EXPONENTS, LinearMap, PrincipalComponents
from taugate_adapt.pairs import TRAIN, AdaptationQueries, PairedTexts
from taugate_adapt.settings import Recipe

_STREAM = 3  # random stream of the seed for the pairs of the adapter


@dataclass(frozen=True)
class EncodedPairs:
    """Documents and queries, encoded.

    Attributes:
        documents: (N, d) float32 vectors of the documents.
        train: (n, d) float32 vectors of the training queries.
        validation: (n, d) float32 vectors of the validation queries.
        unseen: (n, d) float32 vectors of the unseen queries.
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
        encoder: ExportedEncoder,
        cache: EmbeddingCache,
        job: Job,
    ) -> Self:
        """Encode documents and queries, or read their embeddings from a cache."""

        def of_queries(part: Sequence[LabelledQuery]) -> Float32:
            return encode(encoder, (query.text for query in part), len(part), "query", cache, job).vectors

        texts = (document.encoded_text for document in corpus)
        documents = encode(encoder, texts, len(corpus), "document", cache, job).vectors
        train, validation, unseen = (of_queries(part) for part in (queries.train, queries.validation, queries.unseen))
        return cls(queries, documents, train, validation, unseen, corpus)

    @property
    def parents(self) -> Parents:
        """First chunk of each passage's document, (N,) int32; None if the corpus has no chunks."""
        return self.corpus.parents

    def paired_texts(self, learned: LinearMap | None) -> PairedTexts:
        """Return the training queries and documents, through a map if there is one."""
        allowed = self.queries.parts.passages(TRAIN)
        return PairedTexts(
            self.train if learned is None else learned.apply(self.train),
            [query.text for query in self.queries.train],
            [np.searchsorted(allowed, passages) for passages in relevant_passages(self.queries.train, self.parents)],
            self.documents[allowed] if learned is None else learned.apply_to_documents(self.documents[allowed]),
            [self.corpus[position].encoded_text for position in allowed.tolist()],
        )

    def validate(self, learned: LinearMap | None) -> PerQuery:
        """Return NDCG@10 of each validation query in the complete corpus; no map means the base encoder."""
        return self._search(self.queries.validation, self.validation, learned, DEPTH).outcomes().ndcg

    def search_unseen(self, learned: LinearMap | None, k: int) -> SearchTrial:
        """Prepare a search of the unseen queries for k results by the cosine; no map means the base encoder."""
        return self._search(self.queries.unseen, self.unseen, learned, k)

    def _search(
        self, queries: Sequence[LabelledQuery], vectors: Float32, learned: LinearMap | None, k: int
    ) -> SearchTrial:
        documents = self.documents
        if learned is not None:
            vectors, documents = learned.apply(vectors), learned.apply_to_documents(documents)
        return SearchTrial.build(queries, vectors, documents, k, self.parents)


@dataclass(frozen=True)
class TriedRecipe:
    """A recipe with its best result on the validation queries.

    Attributes:
        learned: Map that includes all previous recipes, None without a map.
        per_query: (v,) float64, NDCG@10 of each validation query.
        transformer: Folder of a model whose weights were trained, None if they are those of the base.
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
        """Vectors of the documents by this encoder, (N, d) float32 of unit length."""
        documents = self.pairs.documents
        return documents if self.learned is None else self.learned.apply_to_documents(documents)

    @property
    def ndcg(self) -> float:
        """Mean NDCG@10 over the validation queries."""
        return float(self.per_query.mean())


@dataclass(frozen=True)
class LearnedRecipes:
    """The results of the recipes.

    Attributes:
        training: Record of training through the encoder, None if there was none.
    """

    tried: list[TriedRecipe]
    chosen: TriedRecipe
    steps: int
    base: float
    curve: list[RecipeTrial]
    training: TrainingRecord | None = None

    @classmethod
    def try_linear(
        cls,
        pairs: EncodedPairs,
        recipe: Recipe,
        seed: int,
        steps: int | Callable[[], float],
        job: Job,
        *,
        keep_documents: bool = False,
    ) -> Self:
        """Whiten, and learn the adapter on top of that, within the recipe and the time.

        Args:
            steps: Gradient steps of the adapter, or a function that returns the remaining seconds, which then decide.
        """
        before = pairs.validate(None)
        base = float(before.mean())
        curve = [RecipeTrial(recipe="base", ndcg=base)]
        job.report(f"base: NDCG@10 {base:.4f} on {len(pairs.validation):,} validation queries")
        if keep_documents:
            start = LinearMap.identity_of_queries(pairs.documents.shape[1])
            adapted, adapter_steps = _adapt(
                pairs, TriedRecipe("adapter", start, before, None, pairs), seed, steps, curve
            )
            if adapted is None:
                raise InputError(f"the adapter cannot be learned: {_why_none(adapter_steps)}")
            job.report(f"adapter of queries: NDCG@10 {adapted.ndcg:.4f} after {adapter_steps} steps at most")
            return cls([adapted], adapted, adapter_steps, base, curve)
        settings, best = _whiten(pairs, curve)
        job.report(
            f"whitening: NDCG@10 {best.ndcg:.4f} (centring {settings.centring:g}, exponent {settings.exponent:g})"
        )
        tried, adapter_steps = [best], 0
        if recipe != "whitening":
            adapted, adapter_steps = _adapt(pairs, best, seed, steps, curve)
            if adapted is None:
                job.report(f"warning: the adapter is left out: {_why_none(adapter_steps)}")
            else:
                job.report(f"adapter: NDCG@10 {adapted.ndcg:.4f} after {adapter_steps} steps at most")
                tried.append(adapted)
                if recipe == "adapter" or adapted.ndcg > best.ndcg:
                    best = adapted
        return cls(tried, best, adapter_steps, base, curve)


def _why_none(steps: int) -> str:
    """Return the reason why there is no adapter, from the steps that the budget allowed."""
    return "its loss is not a finite number" if steps else "the budget is spent; raise --budget"


def _whiten(pairs: EncodedPairs, curve: list[RecipeTrial]) -> tuple[WhiteningRecord, TriedRecipe]:
    """Choose the exponent with the mean subtracted, and then the subtracted share of the mean.

    The exponent is the smallest within one standard error of the best (Breiman et al., Classification and Regression
    Trees, 1984, §3.4.3), because crops repeat the words of their document and so reward more whitening than people's
    questions do.
    """
    corpus = pairs.documents[pairs.queries.parts.passages(TRAIN)]
    components = PrincipalComponents.fit(np.concatenate([corpus, pairs.train]))

    def attempt(centring: float, exponent: float) -> tuple[WhiteningRecord, TriedRecipe]:
        settings = WhiteningRecord(centring=centring, exponent=exponent)
        learned = components.whitening(settings)
        recipe = TriedRecipe("whitening", learned, pairs.validate(learned), settings, pairs)
        curve.append(RecipeTrial(recipe="whitening", whitening=settings, ndcg=recipe.ndcg))
        return settings, recipe

    attempts = [attempt(CENTRINGS[0], exponent) for exponent in EXPONENTS]
    best = max((recipe for _, recipe in attempts), key=lambda recipe: recipe.ndcg)
    first = next(candidate for candidate in attempts if _within_one_error(candidate[1], best))
    if first[0].exponent == 0:  # a smaller share of the mean would change nothing
        return first
    centred = (attempt(share, first[0].exponent) for share in CENTRINGS[1:])
    return max([first, *centred], key=lambda candidate: candidate[1].ndcg)


def _within_one_error(recipe: TriedRecipe, best: TriedRecipe) -> bool:
    """Return whether a recipe is below the best by at most the standard error of the difference, by query."""
    differences = best.per_query - recipe.per_query
    return bool(differences.mean() <= differences.std(ddof=1) / np.sqrt(len(differences)))


def _adapt(
    pairs: EncodedPairs, start: TriedRecipe, seed: int, steps: int | Callable[[], float], curve: list[RecipeTrial]
) -> tuple[TriedRecipe | None, int]:
    """Learn the adapter on top of the map of `start`; return its best step and the number of allowed steps."""
    from taugate_adapt.adapter import ContrastivePairs, fit, steps_within  # imports PyTorch

    first = start.learned
    assert first is not None  # noqa: S101 (for the type: the start has a map)
    rng = np.random.default_rng([seed, _STREAM])
    drawn = ContrastivePairs.draw(pairs.paired_texts(first), rng, keeps_documents=first.keeps_documents)
    max_steps = steps if isinstance(steps, int) else steps_within(drawn, steps())
    best: TriedRecipe | None = None
    for checkpoint in fit(drawn, max_steps):
        learned = first.then(checkpoint.weight)
        tried = replace(start, name="adapter", learned=learned, per_query=pairs.validate(learned))
        curve.append(RecipeTrial(recipe="adapter", step=checkpoint.step, loss=checkpoint.loss, ndcg=tried.ndcg))
        best = tried if best is None or tried.ndcg > best.ndcg else best
    return best, max_steps
