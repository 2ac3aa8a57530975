"""Encode every text of a data set, and say what was cut off and what the cache saved."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import CachedEmbedding, EmbeddingCache
from taugate.calibration.progress import Stopwatch, Task
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

_BLOCK = 8192  # texts that are tokenized at once: how many are in memory
_SAVE_SECONDS = 5.0  # between two writes to the cache: with the piece under way, what is lost when the job is stopped
_PIECE_SECONDS = 2.0  # of one call of the encoder
_FIRST_PIECE = 4096  # tokens, before anything is known about the encoder's speed


@dataclass(frozen=True)
class Embeddings:
    """Vectors of n texts.

    Attributes:
        vectors: (n, d) float32.
        lengths: (n,) bytes of each text in UTF-8.
        truncated: Texts longer than the encoder reads.
        encoded: Texts that were not known yet.
    """

    vectors: Float32
    lengths: NDArray[np.int64]
    truncated: int
    encoded: int


def encode(
    encoder: OnnxEncoder, texts: Iterable[str], total: int, role: Role, cache: EmbeddingCache, watch: Stopwatch
) -> Embeddings:
    """Embed texts in order; one that occurs twice, or was embedded by an earlier run, is encoded once.

    Args:
        encoder: That embeds.
        texts: `total` of them.
        total: How many.
        role: Query or document.
        cache: Of this encoder, to which finished vectors are added every few seconds.
        watch: Stopwatch that shows the progress, and whose stage "encode" grows by the time spent in the encoder,
            tokenizer included.
    """
    vectors = np.empty((total, encoder.config.dimension), dtype=np.float32)
    lengths = np.zeros(total, dtype=np.int64)
    remaining = iter(texts)
    prompt = encoder.config.query_prompt if role == "query" else encoder.config.document_prompt
    truncated = encoded = 0
    with watch.task({"query": "encoding queries", "document": "encoding documents"}[role], total) as task:
        for start in range(0, total, _BLOCK):
            block = list(islice(remaining, _BLOCK))
            lengths[start : start + len(block)] = [len(text.encode()) for text in block]
            keys = [cache.key(prompt + text) for text in block]
            known = cache.get(keys)
            new = {key: text for key, text in zip(keys, block, strict=True) if key not in known}
            task.known += len(block) - len(new)
            task.done += len(block) - len(new)
            for finished in _encode_in_pieces(encoder, new, role, watch, task):
                cache.put(finished)
                known |= finished
            encoded += len(new)
            truncated += sum(known[key].truncated for key in keys)
            vectors[start : start + len(block)] = [known[key].vector for key in keys]
    return Embeddings(vectors, lengths, truncated, encoded)


def _encode_in_pieces(
    encoder: OnnxEncoder, texts: Mapping[bytes, str], role: Role, watch: Stopwatch, task: Task
) -> Iterator[dict[bytes, CachedEmbedding]]:
    """Encode texts by key and yield, every few seconds, those that were finished since.

    They are encoded shortest first, as the encoder would order them all, so that batches stay full; how many tokens
    make a piece follows from the speed of the piece before.
    """
    began = saved = time.perf_counter()
    tokens = dict(zip(texts, encoder.tokenize([*texts.values()], role), strict=True))
    watch.add("encode", time.perf_counter() - began)
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
        vectors = encoder.embed([tokens[key] for key in piece], partial(_advance, task))
        finished |= {
            key: CachedEmbedding(vector, tokens[key].truncated) for key, vector in zip(piece, vectors, strict=True)
        }
        now = time.perf_counter()
        watch.add("encode", now - began)
        budget = max(1.0, size) * _PIECE_SECONDS / (now - began)
        if now - saved >= _SAVE_SECONDS or not waiting:
            yield finished
            finished, saved = {}, now


def _advance(task: Task, texts: int) -> None:
    task.done += texts


class Lengths(Protocol):
    """Bytes of the text of N documents: an array, or something that is read by position like one."""

    def __getitem__(self, positions: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the lengths at positions of any shape."""
        ...


@dataclass(frozen=True)
class EncodedTexts:
    """Vectors of a data set, in its order.

    Attributes:
        documents: (N, d), in memory or not, answerable: (n, d), unanswerable: (u, d) and off_topic: float32; off_topic
            are questions that no document answers, none where the data set has unanswerable queries of its own.
        lengths: (N,) int64 bytes of each document's text, title included, by position.
        truncated_documents: Longer than the encoder reads.
        unjudged: (N', d) and generated: (g, d) float32, the queries beside those that were judged, None where they are
            not asked for.
    """

    documents: CorpusVectors
    answerable: Float32
    unanswerable: Float32
    off_topic: Float32
    lengths: Lengths
    truncated_documents: int
    unjudged: Float32 | None = None
    generated: Float32 | None = None


@dataclass(frozen=True)
class EncodedDataset(EncodedTexts):
    """The same with all vectors in memory.

    Attributes:
        documents: (N, d) float32.
        lengths: (N,) int64.
    """

    documents: Float32
    lengths: NDArray[np.int64]


def encode_dataset(
    dataset: Dataset,
    encoder: OnnxEncoder,
    cache: EmbeddingCache,
    say: Callable[[str], None],
    watch: Stopwatch,
    of_documents: OnnxEncoder | None = None,
) -> EncodedDataset:
    """Encode documents and queries.

    Args:
        dataset: Documents and queries.
        encoder: That embeds.
        cache: Of this encoder.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stage "encode" grows by the time spent in the encoder.
        of_documents: That embeds the documents, where it is another one.
    """
    texts, by, known = (document.encoded_text for document in dataset.documents), encoder, cache
    if of_documents is not None:
        by, known = of_documents, EmbeddingCache.for_encoder(of_documents.sha256, of_documents.config.dimension)
    documents = encode(by, texts, len(dataset.documents), "document", known, watch)
    queries = encode_queries(dataset, encoder, cache, watch)
    say(
        f"encoded {documents.encoded} of {len(dataset.documents)} documents and {queries.encoded} of {queries.asked} "
        "queries; the others were known already"
    )
    if cache.failure:
        say(f"warning: no embedding cache: {cache.failure}")
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


Encoded = TypeVar("Encoded", bound=EncodedTexts)


@dataclass(frozen=True)
class EncodedQueries:
    """Vectors of the queries of a data set.

    Attributes:
        answerable: As of EncodedDataset.
        unanswerable: As of EncodedDataset.
        off_topic: As of EncodedDataset.
        unjudged: As of EncodedDataset.
        generated: As of EncodedDataset.
        asked: How many queries there are, off-topic ones left out.
        encoded: Those of them that were not known yet.
    """

    answerable: Float32
    unanswerable: Float32
    off_topic: Float32
    unjudged: Float32 | None
    generated: Float32 | None
    asked: int
    encoded: int

    def replace_in(self, encoded: Encoded) -> Encoded:
        """Return the data set with these queries, and with its own documents.

        Args:
            encoded: The data set.
        """
        return replace(
            encoded,
            answerable=self.answerable,
            unanswerable=self.unanswerable,
            off_topic=self.off_topic,
            unjudged=self.unjudged,
            generated=self.generated,
        )


def encode_queries(dataset: Dataset, encoder: OnnxEncoder, cache: EmbeddingCache, watch: Stopwatch) -> EncodedQueries:
    """Encode every query; the parameters are those of `encode_dataset`."""
    labelled, others = dataset.answerable + dataset.unanswerable, dataset.others
    texts = [query.text for query in labelled]
    if others is not None:
        texts += [*others.unjudged, *(query.text for query in others.generated)]
    queries = encode(encoder, texts, len(texts), "query", cache, watch)
    off_topic = encode(encoder, dataset.off_topic, len(dataset.off_topic), "query", cache, watch)
    ends = np.cumsum(
        [len(dataset.answerable), len(dataset.unanswerable), 0 if others is None else len(others.unjudged)]
    )
    answerable, unanswerable, unjudged, generated = np.split(queries.vectors, ends)
    return EncodedQueries(
        answerable,
        unanswerable,
        off_topic.vectors,
        None if others is None else unjudged,
        None if others is None else generated,
        len(texts),
        queries.encoded,
    )
