"""An updated corpus: its vectors and search, and the check that τ still holds for it.

A vector depends on its text alone, to the last bit (`retrieval/encoder/encoder.py`), so encoding again on the machine
that made the release would give the same vectors. Another kind of processor may change the last bit; the golden queries
check at load that the encoder gives the same results on this machine.

The check is a paired comparison of the metric at τ on the corpus before and after the update. Every labelled query that
both corpora can answer is run on both, with the same threshold. The loss of a query is its accuracy or NDCG before
minus that now, and counts by the weight of the query. τ holds if the mean loss is shown, one-sided with 95 %
confidence, to be within the margin (non-inferiority), by document if queries share documents
(`evidence/risk/losses.py`).

All labelled queries count, including those that chose τ. They favour the corpus that τ was chosen on, so they
overestimate the loss rather than underestimate it.

A query is left out if all its answers were removed, which no threshold can make up for, or if it is only about new
documents, which the old corpus could not answer. A changed document is assumed to answer the queries that it answered
before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance import baseline
from taugate.calibration.acceptance.accept import accept_updated_index
from taugate.calibration.encoding import corpus
from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, CorpusDigests, EmbeddingCache
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.metrics.inputs import CalibrationInputs, OwnPassages, exclude_own, max_own_passages, units_of
from taugate.calibration.progress import Job
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import UpdateSettings
from taugate.calibration.study.reranked import RerankedCandidates, RerankedSearch, score_pairs
from taugate.data.beir import Dataset
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError, ReleaseError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import ResultDocuments, ScoredQueries
from taugate.evidence.risk.losses import min_detectable_loss, paired_losses
from taugate.evidence.rules import CONFIDENCE
from taugate.policy.abstention import AnswerRule
from taugate.policy.arrays import Float32, QueryVectors, map_dense, require_in_memory
from taugate.policy.policy import POLICIES, Mask, Policy, keep_answered
from taugate.release.evidence import Interval
from taugate.release.layout import ENCODER_FOLDER
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.folders import EncoderFolder
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.hybrid import vector_index, words_of
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.reader import Release
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, combined
from taugate.retrieval.vectors import Projection

# Documents whose vectors are compared with the release's, and the least median cosine: the codes of an index change a
# cosine by up to .02, and two models give unrelated vectors.
_COMPARED, _SAME_MODEL = 1000, 0.95


def encode_changes(
    dataset: Dataset, changes: CorpusChanges, release: Release, encoders: Encoders, job: Job
) -> corpus.EncodedDataset:
    """Encode the texts that are new since the current release, and all queries."""
    if dataset.vectors is not None:
        corpus.warn_of_longer(dataset.vectors.documents, encoders.documents.config, job)
        return _own_vectors(corpus.own_dataset(dataset, dataset.vectors, job), changes, release)
    documents, texts = _documents(dataset, changes, release, encoders.documents, job)
    cache = EmbeddingCache.of(encoders.queries)
    queries = corpus.encode_queries(dataset, encoders.queries, cache, job).vectors
    truncated = _truncated(dataset.documents, changes, release, encoders.documents)
    counted = f"{texts:,} {'text' if texts == 1 else 'texts'}"
    job.describe(
        "encode", f"Encoded {counted} for {len(dataset.documents):,} documents (the other vectors were reused)"
    )
    job.add("encode", 0.0)  # also if nothing was encoded
    lengths = np.array([len(document.encoded_text.encode()) for document in dataset.documents], dtype=np.int64)
    encoded = corpus.EncodedDataset(documents=documents, lengths=lengths, truncated_documents=truncated, **queries)
    return _projected_queries(encoded, release.retriever.projection)


def _own_vectors(encoded: corpus.EncodedDataset, changes: CorpusChanges, release: Release) -> corpus.EncodedDataset:
    """Return vectors that came with the newer corpus, projected as those of the release."""
    projection, index = release.retriever.projection, vector_index(release.retriever.index)
    documents = _projected(projection, encoded.documents)
    kept = np.flatnonzero(changes.sources != UNKNOWN)
    kept = kept[:: max(1, len(kept) // _COMPARED)]
    same = documents.shape[1] == index.dimension
    if not same or (len(kept) and np.median(index.score(documents[kept], changes.sources[kept, None])) < _SAME_MODEL):
        raise InputError(
            f"the vectors of unchanged documents are not those of {release.manifest.release_id}, so another model made "
            "them, and its threshold means nothing for them; run taugate calibrate"
        )
    return replace(_projected_queries(encoded, projection), documents=documents)


def _documents(
    dataset: Dataset, changes: CorpusChanges, release: Release, encoder: ExportedEncoder, job: Job
) -> tuple[Float32, int]:
    """Return the vectors of all documents, (N, d) float32, and how many texts were encoded."""
    sources, index = changes.sources, vector_index(release.retriever.index)
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} is not an index of a release")
    if index.stores_rounded_vectors:
        job.report(
            f"the index is {index.kind} and stores rounded vectors; encoding again all texts whose exact vectors are "
            "not in the cache"
        )
        sources = np.full_like(sources, UNKNOWN)
    new = np.flatnonzero(sources == UNKNOWN)
    texts = [dataset.documents[position].encoded_text for position in new.tolist()]
    cache = EmbeddingCache.of(encoder)
    encoded = corpus.encode(encoder, texts, len(texts), "document", cache, job)
    projection, reusable = release.retriever.projection, np.flatnonzero(sources != UNKNOWN)
    vectors = np.empty((len(sources), index.dimension), dtype=np.float32)
    vectors[new] = _projected(projection, encoded.vectors)
    vectors[reusable] = index.vectors[sources[reusable]]
    return vectors, encoded.encoded


def _projected_queries(encoded: corpus.EncodedDataset, projection: Projection | None) -> corpus.EncodedDataset:
    return encoded.with_queries(lambda _, vectors: map_dense(vectors, lambda dense: _projected(projection, dense)))


def _projected(projection: Projection | None, vectors: Float32) -> Float32:
    return vectors if projection is None else projection.apply(vectors)


def _truncated(documents: DocumentStore, changes: CorpusChanges, release: Release, encoder: ExportedEncoder) -> int:
    """Count the documents longer than the encoder reads, from the count of the release and the changes."""
    count = release.manifest.data.truncated_documents
    for store, places, sign in ((release.documents, changes.missing_copies, -1), (documents, changes.extra_copies, 1)):
        tokens = encoder.tokenize([store[position].encoded_text for position in places], "document")
        count += sign * sum(
            times for times, text_tokens in zip(places.values(), tokens, strict=True) if text_tokens.truncated
        )
    return count


def release_encoders(folder: Path, release: Release) -> Encoders:
    """Load the encoders that a release was calibrated with."""
    manifest = release.manifest
    if release.precision != manifest.answering.precision:
        raise ReleaseError(
            f"{folder}: on this machine its {manifest.answering.precision} encoder does not give the recorded results; "
            "update it on the kind of machine that it was calibrated on"
        )
    if not manifest.reads_texts:
        return Encoders.of_vectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    queries, *exact = [EncoderFolder(folder / name).open(manifest, None) for name in manifest.query_encoders]
    float32 = exact[0] if exact else None
    if manifest.query_encoder is not None:
        return Encoders(queries, EncoderFolder(folder / ENCODER_FOLDER).open(manifest, None), float32)
    return Encoders(queries, float32 or queries, float32)


def accept_index(
    inputs: CalibrationInputs, release: Release, encoders: Encoders, encoded: corpus.EncodedTexts
) -> baseline.AcceptedSearch:
    """Build the index of the release's kind: exact, or approximate and tested by the gate again.

    A lexical part keeps its weight, k1 and b, and is computed from the words of the updated corpus.

    Args:
        inputs: The updated corpus with its queries, and the settings of the update.
    """
    manifest = release.manifest
    dataset, lexical, before = inputs.dataset, None, words_of(release.retriever.index)
    with inputs.job.stage("index"):
        if before is not None:
            texts = (document.encoded_text for document in dataset.documents)
            lexical = baseline.LexicalPart(before.lexical.of_other_texts(texts), before.weight)
            encoded = corpus.with_words(encoded, dataset, lexical.words.statistics.rule)
        trial = baseline.SearchTrial.build(
            dataset.answerable,
            encoded.answerable,
            require_in_memory(encoded.documents),
            inputs.settings.k,
            dataset.documents.parents,
            lexical,
        )
    projection = None
    if manifest.projection is not None and release.retriever.projection is not None:
        projection = baseline.RecordedProjection(release.retriever.projection, manifest.projection)
    exact = baseline.GateState.exact(encoders.queries, encoded, trial)
    inherited = replace(
        exact.accepted,
        projection=projection,
        float32=encoders.float32,
        documents=None if manifest.query_encoder is None else encoders.documents,
        golden_tolerance=manifest.golden_tolerance,
    )
    return accept_updated_index(inputs, replace(exact, accepted=inherited))


_METRICS = {"accuracy": "accuracy", "ndcg": "NDCG"}


@dataclass(frozen=True)
class ThresholdCheck:
    """The comparison of both corpora."""

    units: SamplingUnits  # sampling units of the queries that both corpora can answer
    before: float  # mean of the metric at τ over these queries on the old corpus
    now: float
    loss: Interval  # loss of the average unit, with one-sided limits at CONFIDENCE each
    margin: float
    widened: bool  # whether the margin is above the default because the labels cannot show less
    unpaired: int  # number of queries that are only about new documents
    metric: str
    name: str = "the threshold"

    @property
    def holds(self) -> bool:
        """Whether the loss is shown to be within the margin."""
        return self.loss.upper <= self.margin

    @property
    def sentence(self) -> str:
        """The result as one sentence, without its full stop."""
        verdict = f"{self.name} still holds" if self.holds else f"{self.name} is not shown to hold"
        change = f"from {self.before:.4f} to {self.now:.4f}"
        average = "average document" if self.units.unit == "document" else "average query"
        return (
            f"{verdict}: on {self.units.words}, {self.metric} at τ went {change}; the {average} "
            f"{'loses' if self.loss.mean >= 0 else 'gains'} {abs(self.loss.mean):.4f}, and loses "
            f"at most {self.loss.upper:.4f} ({100 * CONFIDENCE:g} % confidence); {self.margin:g} is allowed"
        )


class PairedQueries(NamedTuple):
    """The queries that both corpora can answer."""

    rows: NDArray[np.int64]  # (q,) positions among the answerable queries
    queries: list[LabelledQuery]
    vectors: QueryVectors  # (q, d) float32
    own_passages: OwnPassages  # positions in the old corpus that are excluded from the results of each query


# Returns the (q, K) results of the queries in the old corpus, and the mask of those that were kept, as the release did.
ResultsBefore = Callable[[PairedQueries], tuple[TopK, Mask]]


def check_threshold(
    results_before: ResultsBefore,
    before: CorpusDigests,
    search: LabelledSearch,
    scored: ScoredQueries,
    policy: PolicyRecord,
    settings: UpdateSettings,
) -> ThresholdCheck:
    """Compare the policy's metric at τ before and after an update."""
    dataset, vectors = search.dataset, search.encoded.answerable
    grades_before = _grades_before(before, dataset)
    pairs = np.array([row for row, of in enumerate(grades_before) if max(of.values(), default=0) > 0], dtype=np.int64)
    if not len(pairs):
        raise InputError(
            f"{dataset.name}: no labelled query of the split {dataset.split} has a relevant document in the current "
            "release, so there is no way to check τ; run taugate calibrate on the new corpus"
        )
    queries = [dataset.answerable[row] for row in pairs.tolist()]
    paired_queries = PairedQueries(pairs, queries, vectors[pairs], _own_before(before, dataset, queries))
    paired, (top, kept) = scored.take(pairs), results_before(paired_queries)
    grades = [[grades_before[row].get(position, 0) for position in positions] for row, positions in _rows(pairs, top)]
    documents = np.unique(before.documents[top.positions], return_inverse=True)[1].reshape(kept.shape).astype(np.int32)
    earlier = replace(
        paired.judged, top=top, grades=np.array(grades), documents=ResultDocuments(documents, np.ones_like(kept))
    )
    then = earlier.metric(policy.metric, kept)
    now = paired.judged.metric(policy.metric, paired.kept(policy.kind, policy.threshold))
    units = units_of(queries, search.units.drawn)
    weights = np.array([query.weight for query in queries])
    scale, shares = float(weights.max() / weights.mean()), weights / weights.max()  # so that no loss is above 1
    losses = paired_losses((then - now) * shares, units)
    mean, lower, upper = losses.mean, losses.lower_limit(CONFIDENCE), losses.upper_limit(CONFIDENCE)
    margin = settings.margin_for(scale * min_detectable_loss(units, CONFIDENCE))
    loss = Interval(mean=scale * mean, lower=max(-1.0, scale * lower), upper=min(1.0, scale * upper))
    before_mean, now_mean = (float(np.average(values, weights=weights)) for values in (then, now))
    widened = settings.margin is None and margin > settings.margin_for(0)
    unpaired = len(dataset.answerable) - len(pairs)
    return ThresholdCheck(units, before_mean, now_mean, loss, margin, widened, unpaired, _METRICS[policy.metric])


def _rows(pairs: NDArray[np.int64], top: TopK) -> Iterator[tuple[int, list[int]]]:
    """Yield the row of each paired query with the positions of its results."""
    return zip(pairs.tolist(), top.positions.tolist(), strict=True)


def _grades_before(before: CorpusDigests, dataset: Dataset) -> list[dict[int, int]]:
    """Return, for each answerable query, the grades of passages by their positions in the old corpus.

    A judged document is looked up by its id, whatever its chunks were; a relevant chunk by its own id.
    """
    named = [_named(query, dataset.documents) for query in dataset.answerable]
    places = before.positions({name for names in named for name in names})
    return [{position: grade for name, grade in names.items() for position in places.get(name, ())} for names in named]


def _named(query: LabelledQuery, documents: DocumentStore) -> dict[str, int]:
    """Return the grades of a query's judged documents by id, or of the relevant chunks if only a part answers it."""
    chunks = query.chunks or {}
    grades = {documents[document].document_id: -grade for document, grade in query.lesser.items()}
    for document, grade in query.relevant.items():
        if document in chunks:
            grades |= {documents[position].id: grade for position in chunks[document]}
        else:
            grades[documents[document].document_id] = grade
    return grades


def _own_before(before: CorpusDigests, dataset: Dataset, queries: list[LabelledQuery]) -> OwnPassages:
    """Return the positions in the old corpus of each query's own passages, which are excluded from its results."""
    named = [[dataset.documents[position].id for position in query.own_passages] for query in queries]
    places = before.positions({name for names in named for name in names})
    return [tuple(position for name in names for position in places.get(name, ())) for names in named]


def first_stage_before(release: Release, paired: PairedQueries) -> tuple[TopK, Mask]:
    """Return the results of the first stage, or of the only one, and which of them are kept; see `ResultsBefore`."""
    retriever = release.retriever
    top = _searched(release, paired, retriever.policy.k)
    relevance = None if retriever.relevance is None else retriever.relevance.estimate(paired.vectors, top)
    return top, _kept(retriever.policy, retriever.abstention, paired, top, relevance)


@dataclass(frozen=True)
class SecondStageBefore:
    """Ranks the candidates of the old corpus, of which those in the new one have their scores already."""

    release: Release
    second: SecondStage
    after: RerankedSearch  # the search of the new corpus by the same reranker
    changes: CorpusChanges

    def __call__(self, paired: PairedQueries) -> tuple[TopK, Mask]:
        """Return the results of the second stage, and which of them are kept; see `ResultsBefore`."""
        rule, texts = self.second.rule, [query.text for query in paired.queries]
        first, k = _searched(self.release, paired, rule.candidates), rule.policy.k
        job, known = self.after.inputs.job, self._known(paired, first)
        scores = score_pairs(self.second.reranker, texts, first.positions, job, "ranking earlier documents", known)
        candidates = RerankedCandidates(first, combined(scores, first.scores, rule.first_stage_weight))
        top = TopK(candidates.second.scores[:, :k], candidates.second.positions[:, :k])
        relevance = None
        if rule.relevance is not None:
            relevance = rule.relevance.estimate(top.scores, {FIRST_SCORE: candidates.first_scores[:, :k]})
        return top, _kept(rule.policy, rule.abstention, paired, top, relevance)

    def _known(self, paired: PairedQueries, first: TopK) -> Float32:
        """Return the scores of (q, N) old candidates whose text is among the new candidates, NaN for the others."""
        new = self.after.answerable
        sources = self.changes.sources[new.first.positions[paired.rows]]
        same = (first.positions[:, :, None] == sources[:, None, :]) & (sources != UNKNOWN)[:, None, :]
        alone = combined(new.scores, new.first.scores, -self.after.first_stage_weight)  # shares depend on the corpus
        scores = np.take_along_axis(alone[paired.rows], same.argmax(axis=2), axis=1)
        return np.where(same.any(axis=2), scores, np.float32(np.nan))


def _searched(release: Release, paired: PairedQueries, depth: int) -> TopK:
    """Search the old corpus for so many results of each query."""
    results = release.retriever.index.search(paired.vectors, depth + max_own_passages(paired.own_passages))
    return exclude_own(paired.own_passages, results)


def _kept(
    policy: Policy, abstention: AnswerRule | None, paired: PairedQueries, top: TopK, relevance: Float32 | None
) -> Mask:
    texts = [query.text for query in paired.queries]
    answered = None if abstention is None else abstention.answered(texts, paired.vectors, top)
    return keep_answered(POLICIES[policy.kind].decide(top.scores, relevance), policy.threshold, answered)
