"""Encodes every text of a data set, counting truncated texts and texts found in the cache."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NotRequired, Protocol, Self, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import CachedEmbedding, EmbeddingCache
from taugate.calibration.progress import Job, Task
from taugate.data.beir import Dataset
from taugate.data.generation.near_misses import near_misses
from taugate.data.vectors import DatasetVectors
from taugate.errors import TextRefused
from taugate.policy.arrays import CorpusVectors, Float32, QueryVectors
from taugate.release.encoder import EncoderConfig, Role
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.words import RULE, WordRule, hybrid_vectors
from taugate.retrieval.vectors import Projection, count_longer

_BLOCK = 8192  # texts tokenized at once, which limits those in memory
_SAVE_SECONDS = 5.0  # between two writes to the cache; a stopped job loses this much work and the current piece
_PIECE_SECONDS = 2.0  # duration of one call of the encoder
_FIRST_PIECE = 4096  # tokens, before the encoder's speed has been measured


@contextmanager
def naming_refused(config: EncoderConfig, role: Role, texts: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Name the text in a TextRefused."""
    try:
        yield
    except TextRefused as error:
        prompt = config.query_prompt if role == "query" else config.document_prompt
        names = (name for name, text in texts if (prompt + text).startswith(error.text))
        raise TextRefused(f"{role} {next(names, error.text[:60])!r}: {error}") from error


@dataclass(frozen=True)
class Embeddings:
    """Vectors of n texts."""

    vectors: Float32  # (n, d) float32
    lengths: NDArray[np.int64]  # (n,) bytes of each text in UTF-8
    truncated: int
    encoded: int  # number of texts that were not in the cache


def encode(
    encoder: ExportedEncoder, texts: Iterable[str], total: int, role: Role, cache: EmbeddingCache, job: Job
) -> Embeddings:
    """Embed texts in order, encoding each distinct text once, and none that the cache has.

    Args:
        cache: The encoder's cache; finished vectors are added every few seconds.
        job: Shows the progress; its stage "encode" grows by the time spent in the encoder and the tokenizer.
    """
    vectors = np.empty((total, encoder.config.dimension), dtype=np.float32)
    lengths = np.zeros(total, dtype=np.int64)
    remaining = iter(texts)
    prefix = encoder.config.cached_as(role)
    truncated = encoded = 0
    with job.task({"query": "encoding queries", "document": "encoding documents"}[role], total) as task:
        for start in range(0, total, _BLOCK):
            block = list(islice(remaining, _BLOCK))
            lengths[start : start + len(block)] = [len(text.encode()) for text in block]
            keys = [cache.key(prefix + text) for text in block]
            embeddings = cache.get(keys)
            new = {key: text for key, text in zip(keys, block, strict=True) if key not in embeddings}
            task.skip(len(block) - len(new))
            for finished in _encode_in_pieces(encoder, new, role, job, task):
                cache.put(finished)
                embeddings |= finished
            encoded += len(new)
            truncated += sum(embeddings[key].truncated for key in keys)
            vectors[start : start + len(block)] = [embeddings[key].vector for key in keys]
    if role == "document":
        warn_of_longer(vectors, encoder.config, job)
    elif truncated and encoder.config.endpoint is not None:
        job.report(
            f"warning: {truncated:,} of {total:,} queries are longer than the endpoint reads, which ignores the rest"
        )
    return Embeddings(vectors, lengths, truncated, encoded)


def warn_of_longer(documents: CorpusVectors, config: EncoderConfig, job: Job) -> None:
    """Warn if vectors of documents, (N, d), are longer than the largest length for inner products."""
    rows = documents.shape[0]
    if config.max_norm is None or not rows:
        return
    checked = np.unique(np.linspace(0, rows - 1, min(rows, _BLOCK)).astype(np.int64))
    longer = count_longer(documents[checked])
    if longer:
        job.report(
            f"warning: {longer:,} of {len(checked):,} checked documents have vectors longer than {config.max_norm:g}, "
            "the limit of this encoder for the dot product, and score as if they had that length"
        )


def _encode_in_pieces(
    encoder: ExportedEncoder, texts: Mapping[bytes, str], role: Role, job: Job, task: Task
) -> Iterator[dict[bytes, CachedEmbedding]]:
    """Encode texts by key, and yield the finished ones every few seconds.

    Shortest first, the order in which the encoder would sort them all, so that batches are full. The number of tokens
    in a piece follows from the speed of the previous piece.
    """
    began = saved = time.perf_counter()
    tokens = dict(zip(texts, encoder.tokenize([*texts.values()], role), strict=True))
    job.add("encode", time.perf_counter() - began)
    waiting = sorted(tokens, key=lambda key: encoder.padded(tokens[key].count), reverse=True)
    finished: dict[bytes, CachedEmbedding] = {}
    budget = float(_FIRST_PIECE)
    while waiting:
        began = time.perf_counter()
        piece: list[bytes] = []
        size = 0
        while waiting and len(piece) < encoder.max_piece and (not piece or size < budget):
            piece.append(waiting.pop())
            size += tokens[piece[-1]].count
        try:
            vectors = encoder.embed([tokens[key] for key in piece], task.advance)
        except BaseException:
            yield finished  # so that they are not encoded again, as an endpoint costs money
            raise
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
    """Vectors of a data set, in its order."""

    documents: CorpusVectors  # (N, d) float32, in memory or not
    answerable: QueryVectors  # (n, d) float32
    unanswerable: QueryVectors  # (u, d) float32
    off_topic: QueryVectors  # (o, d) float32, questions about other subjects
    lengths: Lengths  # (N,) int64 bytes of each document's text, title included, by position
    truncated_documents: int
    unjudged: QueryVectors | None = None  # (N', d) float32, queries without judgements; None if not requested
    generated: QueryVectors | None = None  # (g, d) float32; None if not requested
    near_misses: EncodedNearMisses | None = None  # None if not requested

    def with_queries(self, change: Callable[[str, QueryVectors], QueryVectors]) -> Self:
        """Change the vectors of every kind of query but near misses; `change` takes a field's name and value."""
        return replace(
            self,
            answerable=change("answerable", self.answerable),
            unanswerable=change("unanswerable", self.unanswerable),
            off_topic=change("off_topic", self.off_topic),
            unjudged=None if self.unjudged is None else change("unjudged", self.unjudged),
            generated=None if self.generated is None else change("generated", self.generated),
        )


@dataclass(frozen=True)
class EncodedDataset(EncodedTexts):
    """Vectors of a data set, all in memory."""

    documents: Float32  # (N, d) float32
    lengths: NDArray[np.int64]  # (N,) int64


Encoded = TypeVar("Encoded", bound=EncodedTexts)


def encode_dataset(
    dataset: Dataset,
    encoder: ExportedEncoder,
    cache: EmbeddingCache,
    job: Job,
    document_encoder: ExportedEncoder | None = None,
) -> EncodedDataset:
    """Encode documents and queries.

    Args:
        encoder: Encoder of the queries, and of the documents unless they have their own.
    """
    if dataset.vectors is not None:
        return own_dataset(dataset, dataset.vectors, job)
    texts = (document.encoded_text for document in dataset.documents)
    document_cache = cache
    if document_encoder is None:
        document_encoder = encoder
    else:
        document_cache = EmbeddingCache.of(document_encoder)
    names = ((document.id, document.encoded_text) for document in dataset.documents)
    with naming_refused(document_encoder.config, "document", names):
        documents = encode(document_encoder, texts, len(dataset.documents), "document", document_cache, job)
    queries = encode_queries(dataset, encoder, cache, job)
    job.describe(
        "encode",
        f"Encoded {documents.encoded:,} of {len(dataset.documents):,} documents and {queries.encoded:,} of "
        f"{queries.total:,} queries",
    )
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    return EncodedDataset(
        documents=documents.vectors,
        lengths=documents.lengths,
        truncated_documents=documents.truncated,
        **queries.vectors,
    )


def own_dataset(dataset: Dataset, vectors: DatasetVectors, job: Job) -> EncodedDataset:
    """Return the vectors that came with a data set, which are not encoded."""
    job.describe("encode", f"Read {'; '.join(vectors.notes)}")
    job.add("encode", 0.0)  # so that the description is shown
    queries = {kind: vectors.of_texts(texts) for kind, texts in query_texts(dataset).items()}
    queries["off_topic"] = vectors.queries[:0]
    lengths = np.array([len(document.encoded_text.encode()) for document in dataset.documents], dtype=np.int64)
    of_kinds = cast("VectorsByKind", queries)
    return EncodedDataset(documents=vectors.documents, lengths=lengths, truncated_documents=0, **of_kinds)


def with_words(encoded: Encoded, dataset: Dataset, rule: WordRule = RULE) -> Encoded:
    """Add the words of all queries of a data set to their vectors, for a score with a lexical part.

    Args:
        rule: Rule of the index that the words are looked up in.
    """
    texts = query_texts(dataset) | {"off_topic": dataset.off_topic_texts}
    return encoded.with_queries(lambda kind, vectors: hybrid_vectors(vectors, texts[kind], rule))


def query_texts(dataset: Dataset) -> dict[str, Sequence[str]]:
    """Return the texts of every kind of query that is special to a data set."""
    kinds = {"answerable": dataset.answerable, "unanswerable": dataset.unanswerable}
    texts: dict[str, Sequence[str]] = {kind: [query.text for query in queries] for kind, queries in kinds.items()}
    if (others := dataset.other_queries) is not None:
        texts |= {"unjudged": others.unjudged, "generated": [query.text for query in others.generated]}
    return texts


def encode_near_misses(
    dataset: Dataset,
    encoder: ExportedEncoder,
    projection: Projection | None,
    seed: int,
    job: Job,
    *,
    rule: WordRule | None,
) -> EncodedNearMisses:
    """Make near misses from the answerable queries, and encode them as queries are searched.

    Args:
        job: Its stage "encode" grows by the time spent in the encoder.
        rule: Rule of the index of words; None if the score has no lexical part.
    """
    questions = near_misses(dataset, seed)
    texts = [question.text for question in questions]
    cache = EmbeddingCache.of(encoder)
    vectors = encode(encoder, texts, len(questions), "query", cache, job).vectors
    sources = np.array([question.source for question in questions], dtype=np.int64)
    searched = vectors if projection is None else projection.apply(vectors)
    return EncodedNearMisses(searched if rule is None else hybrid_vectors(searched, texts, rule), sources)


class VectorsByKind(TypedDict):
    """Vectors of the queries of a data set, (n, d) float32, by their field in EncodedTexts."""

    answerable: Float32
    unanswerable: Float32
    off_topic: Float32
    unjudged: NotRequired[Float32]
    generated: NotRequired[Float32]


@dataclass(frozen=True)
class EncodedQueries:
    """Vectors of the queries of a data set."""

    vectors: VectorsByKind
    total: int
    encoded: int  # number of these that were not in the cache


def encode_queries(dataset: Dataset, encoder: ExportedEncoder, cache: EmbeddingCache, job: Job) -> EncodedQueries:
    """Encode every query; takes the parameters of `encode_dataset`."""
    texts = query_texts(dataset)
    total = sum(map(len, texts.values()))
    names = ((query.id, query.text) for query in dataset.answerable + dataset.unanswerable)
    with naming_refused(encoder.config, "query", names):
        queries = encode(encoder, chain.from_iterable(texts.values()), total, "query", cache, job)
    off_topic = encode(encoder, dataset.off_topic_texts, len(dataset.off_topic), "query", cache, job)
    ends = np.cumsum([len(of_kind) for of_kind in texts.values()])[:-1]
    vectors = dict(zip(texts, np.split(queries.vectors, ends), strict=True))
    by_kind = cast("VectorsByKind", vectors | {"off_topic": off_topic.vectors})
    return EncodedQueries(by_kind, total, queries.encoded)
