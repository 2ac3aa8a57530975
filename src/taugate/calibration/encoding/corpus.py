"""Encode every text of a data set, counting truncated texts and texts found in the cache."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import CachedEmbedding, EmbeddingCache
from taugate.calibration.progress import Job, Task
from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.queries.near_misses import near_misses
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.queries import QueryVectors, map_dense
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

_BLOCK = 8192  # texts tokenized at once, which limits those in memory
_SAVE_SECONDS = 5.0  # between two writes to the cache; a stopped job loses this much work and the current piece
_PIECE_SECONDS = 2.0  # duration of one call of the encoder
_FIRST_PIECE = 4096  # tokens, before the encoder's speed has been measured


@dataclass(frozen=True)
class Embeddings:
    """Vectors of n texts.

    Attributes:
        vectors: (n, d) float32.
        lengths: (n,) bytes of each text in UTF-8.
        truncated: Number of texts longer than the encoder reads.
        encoded: Number of texts that were not in the cache.
    """

    vectors: Float32
    lengths: NDArray[np.int64]
    truncated: int
    encoded: int


def encode(
    encoder: OnnxEncoder, texts: Iterable[str], total: int, role: Role, cache: EmbeddingCache, job: Job
) -> Embeddings:
    """Embed texts in order, encoding each distinct text once, and none that the cache has.

    Args:
        encoder: The encoder.
        texts: `total` texts.
        total: Number of texts.
        role: Query or document.
        cache: The encoder's cache; finished vectors are added every few seconds.
        job: Shows the progress; its stage "encode" grows by the time spent in the encoder and the tokenizer.
    """
    vectors = np.empty((total, encoder.config.dimension), dtype=np.float32)
    lengths = np.zeros(total, dtype=np.int64)
    remaining = iter(texts)
    prompt = encoder.config.query_prompt if role == "query" else encoder.config.document_prompt
    truncated = encoded = 0
    with job.task({"query": "encoding queries", "document": "encoding documents"}[role], total) as task:
        for start in range(0, total, _BLOCK):
            block = list(islice(remaining, _BLOCK))
            lengths[start : start + len(block)] = [len(text.encode()) for text in block]
            keys = [cache.key(prompt + text) for text in block]
            embeddings = cache.get(keys)
            new = {key: text for key, text in zip(keys, block, strict=True) if key not in embeddings}
            task.skip(len(block) - len(new))
            for finished in _encode_in_pieces(encoder, new, role, job, task):
                cache.put(finished)
                embeddings |= finished
            encoded += len(new)
            truncated += sum(embeddings[key].truncated for key in keys)
            vectors[start : start + len(block)] = [embeddings[key].vector for key in keys]
    return Embeddings(vectors, lengths, truncated, encoded)


def _encode_in_pieces(
    encoder: OnnxEncoder, texts: Mapping[bytes, str], role: Role, job: Job, task: Task
) -> Iterator[dict[bytes, CachedEmbedding]]:
    """Encode texts by key, and yield the finished ones every few seconds.

    Shortest first, the order in which the encoder would sort them all, so that batches are full. The number of tokens
    in a piece follows from the speed of the previous piece.
    """
    began = saved = time.perf_counter()
    tokens = dict(zip(texts, encoder.tokenize([*texts.values()], role), strict=True))
    job.add("encode", time.perf_counter() - began)
    waiting = sorted(tokens, key=lambda key: encoder.padded(len(tokens[key].ids)), reverse=True)
    finished: dict[bytes, CachedEmbedding] = {}
    budget = float(_FIRST_PIECE)
    while waiting:
        began = time.perf_counter()
        piece: list[bytes] = []
        size = 0
        while waiting and (not piece or size < budget):
            piece.append(waiting.pop())
            size += len(tokens[piece[-1]].ids)
        vectors = encoder.embed([tokens[key] for key in piece], task.advance)
        finished |= {
            key: CachedEmbedding(vector, tokens[key].truncated) for key, vector in zip(piece, vectors, strict=True)
        }
        now = time.perf_counter()
        job.add("encode", now - began)
        budget = max(1.0, size) * _PIECE_SECONDS / (now - began)
        if now - saved >= _SAVE_SECONDS or not waiting:
            yield finished
            finished, saved = {}, now


class Lengths(Protocol):
    """Bytes of the texts of N documents: an array, or an object indexed by position like one."""

    def __getitem__(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the lengths at positions of any shape."""
        ...


@dataclass(frozen=True)
class EncodedNearMisses:
    """Near misses, (m, d), and (m,) positions of the answerable queries that they were made from."""

    vectors: QueryVectors
    sources: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedTexts:
    """Vectors of a data set, in its order.

    Attributes:
        documents: (N, d) float32, in memory or not.
        answerable: (n, d) float32.
        unanswerable: (u, d) float32.
        off_topic: (o, d) float32, questions about other subjects.
        lengths: (N,) int64 bytes of each document's text, title included, by position.
        truncated_documents: Number of documents longer than the encoder reads.
        unjudged: (N', d) float32, queries without judgements; None if not requested.
        generated: (g, d) float32; None if not requested.
        near_misses: None if not requested.
    """

    documents: CorpusVectors
    answerable: QueryVectors
    unanswerable: QueryVectors
    off_topic: QueryVectors
    lengths: Lengths
    truncated_documents: int
    unjudged: QueryVectors | None = None
    generated: QueryVectors | None = None
    near_misses: EncodedNearMisses | None = None


@dataclass(frozen=True)
class EncodedDataset(EncodedTexts):
    """Vectors of a data set, all in memory.

    Attributes:
        documents: (N, d) float32.
        lengths: (N,) int64.
    """

    documents: Float32
    lengths: NDArray[np.int64]


Encoded = TypeVar("Encoded", bound=EncodedTexts)


def encode_dataset(
    dataset: Dataset,
    encoder: OnnxEncoder,
    cache: EmbeddingCache,
    job: Job,
    document_encoder: OnnxEncoder | None = None,
) -> EncodedDataset:
    """Encode documents and queries.

    Args:
        dataset: Documents and queries.
        encoder: Encoder of the queries, and of the documents unless they have their own.
        cache: Cache of `encoder`.
        job: Reports progress and warnings, and times the stages.
        document_encoder: Encoder of the documents if it is another one.
    """
    texts = (document.encoded_text for document in dataset.documents)
    document_cache = cache
    if document_encoder is None:
        document_encoder = encoder
    else:
        document_cache = EmbeddingCache.for_encoder(document_encoder.sha256, document_encoder.config.dimension)
    documents = encode(document_encoder, texts, len(dataset.documents), "document", document_cache, job)
    queries = encode_queries(dataset, encoder, cache, job)
    reused = len(dataset.documents) - documents.encoded + queries.total - queries.encoded
    job.report(
        f"encoded {documents.encoded} of {len(dataset.documents)} documents and {queries.encoded} of {queries.total} "
        f"queries, {reused} reused from the cache"
    )
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    return EncodedDataset(
        documents.vectors,
        queries.answerable,
        queries.unanswerable,
        queries.off_topic,
        documents.lengths,
        documents.truncated,
        queries.unjudged,
        queries.generated,
    )


def with_words(encoded: Encoded, dataset: Dataset) -> Encoded:
    """Add the words of all queries of a data set to their vectors, for a score with a lexical part.

    Args:
        encoded: Vectors of the data set, without near misses.
        dataset: The data set.
    """
    others = dataset.other_queries
    unjudged, generated = encoded.unjudged, encoded.generated
    return replace(
        encoded,
        answerable=hybrid_vectors(encoded.answerable, (query.text for query in dataset.answerable)),
        unanswerable=hybrid_vectors(encoded.unanswerable, (query.text for query in dataset.unanswerable)),
        off_topic=hybrid_vectors(encoded.off_topic, dataset.off_topic),
        unjudged=None if unjudged is None or others is None else hybrid_vectors(unjudged, others.unjudged),
        generated=None
        if generated is None or others is None
        else hybrid_vectors(generated, (query.text for query in others.generated)),
    )


def encode_near_misses(
    dataset: Dataset,
    encoder: OnnxEncoder,
    projection: Projection | None,
    seed: int,
    job: Job,
    *,
    with_words: bool,
) -> EncodedNearMisses:
    """Make near misses from the answerable queries, and encode them as queries are searched.

    Args:
        dataset: Documents and queries.
        encoder: Encoder of the queries.
        projection: Projection of the vectors, None without one.
        seed: Seed of the near misses.
        job: Its stage "encode" grows by the time spent in the encoder.
        with_words: Whether the score has a lexical part.
    """
    questions = near_misses(dataset, seed)
    texts = [question.text for question in questions]
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    vectors = encode(encoder, texts, len(questions), "query", cache, job).vectors
    sources = np.array([question.source for question in questions], dtype=np.int64)
    searched = vectors if projection is None else projection.apply(vectors)
    return EncodedNearMisses(hybrid_vectors(searched, texts) if with_words else searched, sources)


@dataclass(frozen=True)
class EncodedQueries:
    """Vectors of the queries of a data set.

    Attributes:
        answerable: As in EncodedTexts, like the next four.
        unanswerable: (u, d).
        off_topic: (o, d).
        unjudged: (N', d) or None.
        generated: (g, d) or None.
        total: Number of queries without the off-topic ones.
        encoded: Number of these that were not in the cache.
    """

    answerable: Float32
    unanswerable: Float32
    off_topic: Float32
    unjudged: Float32 | None
    generated: Float32 | None
    total: int
    encoded: int

    def replace_in(self, encoded: Encoded) -> Encoded:
        """Return the data set `encoded` with these queries in place of its own."""
        return replace(
            encoded,
            answerable=_with_vectors(encoded.answerable, self.answerable),
            unanswerable=_with_vectors(encoded.unanswerable, self.unanswerable),
            off_topic=_with_vectors(encoded.off_topic, self.off_topic),
            unjudged=None if encoded.unjudged is None else _with_vectors(encoded.unjudged, self.unjudged),
            generated=None if encoded.generated is None else _with_vectors(encoded.generated, self.generated),
        )


def _with_vectors(queries: QueryVectors, vectors: Float32 | None) -> QueryVectors:
    """Return queries with other vectors, and their words if they have any."""
    return queries if vectors is None else map_dense(queries, lambda _: vectors)


def encode_queries(dataset: Dataset, encoder: OnnxEncoder, cache: EmbeddingCache, job: Job) -> EncodedQueries:
    """Encode every query; takes the parameters of `encode_dataset`."""
    labelled, unlabelled = dataset.answerable + dataset.unanswerable, dataset.other_queries
    texts = [query.text for query in labelled]
    if unlabelled is not None:
        texts += [*unlabelled.unjudged, *(query.text for query in unlabelled.generated)]
    queries = encode(encoder, texts, len(texts), "query", cache, job)
    off_topic = encode(encoder, dataset.off_topic, len(dataset.off_topic), "query", cache, job)
    ends = np.cumsum(
        [len(dataset.answerable), len(dataset.unanswerable), 0 if unlabelled is None else len(unlabelled.unjudged)]
    )
    answerable, unanswerable, unjudged, generated = np.split(queries.vectors, ends)
    return EncodedQueries(
        answerable,
        unanswerable,
        off_topic.vectors,
        None if unlabelled is None else unjudged,
        None if unlabelled is None else generated,
        len(texts),
        queries.encoded,
    )
