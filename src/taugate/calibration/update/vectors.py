"""Vectors of an updated corpus: those of the current release where a text stayed, and of the encoder where it is new.

A vector depends on its text alone, to the last bit (`retrieval/encoder/encoder.py`), so that those of the release are
those that encoding again would give on the machine that made it. Another kind of processor may give another last bit;
that the encoder answers here as it did there is checked by the golden queries, when the release is opened.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import UNKNOWN, CorpusChanges
from taugate.calibration.encoding.corpus import EncodedDataset, encode
from taugate.calibration.progress import Stopwatch
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.kinds import QUANTIZERS
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class ReleaseEncoders:
    """The encoders of a release.

    Attributes:
        queries: That answers.
        documents: The same, unless queries have int8 weights or a map of their own.
        float32: That an int8 encoder of queries was made of, None where there is none.
    """

    queries: OnnxEncoder
    documents: OnnxEncoder
    float32: OnnxEncoder | None = None


def encode_changes(
    dataset: Dataset,
    changes: CorpusChanges,
    release: Release,
    encoders: ReleaseEncoders,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> EncodedDataset:
    """Encode the texts that the current release does not know, and all queries.

    Args:
        dataset: The updated corpus with its queries.
        changes: Since the release.
        release: Opened.
        encoders: Its own.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stage "encode" grows.
    """
    documents, texts = _documents(dataset, changes, release, encoders.documents, say, watch)
    cache = EmbeddingCache.for_encoder(encoders.queries.sha256, encoders.queries.config.dimension)
    labelled = [query.text for query in dataset.answerable + dataset.unanswerable]
    asked = encode(encoders.queries, labelled, len(labelled), "query", cache, watch).vectors
    off_topic = encode(encoders.queries, dataset.off_topic, len(dataset.off_topic), "query", cache, watch).vectors
    projected = [_projected(release.retriever.projection, vectors) for vectors in (asked, off_topic)]
    count = len(dataset.answerable)
    truncated = _truncated(dataset.documents, changes, release, encoders.documents)
    counted = f"{texts:,} {'text' if texts == 1 else 'texts'}"
    say(f"encoded {counted} for {len(dataset.documents):,} documents; the other vectors were known already")
    if truncated:
        config = encoders.documents.config
        say(f"warning: {truncation_warning(truncated, len(dataset.documents), config.max_length, config.name)}")
    lengths = np.array([len(document.encoded_text.encode()) for document in dataset.documents], dtype=np.int64)
    return EncodedDataset(documents, projected[0][:count], projected[0][count:], projected[1], lengths, truncated)


def _documents(
    dataset: Dataset,
    changes: CorpusChanges,
    release: Release,
    encoder: OnnxEncoder,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> tuple[Float32, int]:
    """Return the vectors of all documents, (N, d) float32, and how many texts were encoded."""
    kind = release.manifest.index.kind
    sources = changes.sources
    if kind in QUANTIZERS:
        say(
            f"the index is {kind}, whose vectors are rounded: texts whose exact vectors are not in the cache are "
            "encoded again"
        )
        sources = np.full_like(sources, UNKNOWN)
    new = np.flatnonzero(sources == UNKNOWN)
    texts = [dataset.documents[position].encoded_text for position in new.tolist()]
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    found = encode(encoder, texts, len(texts), "document", cache, watch)
    projection, known = release.retriever.projection, np.flatnonzero(sources != UNKNOWN)
    index = release.retriever.index
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} is no index of a release")
    vectors = np.empty((len(sources), index.dimension), dtype=np.float32)
    vectors[new] = _projected(projection, found.vectors)
    vectors[known] = index.vectors[sources[known]]
    return vectors, found.encoded


def _projected(projection: Projection | None, vectors: Float32) -> Float32:
    return vectors if projection is None else projection.apply(vectors)


def _truncated(documents: DocumentStore, changes: CorpusChanges, release: Release, encoder: OnnxEncoder) -> int:
    """Count the documents that are longer than the encoder reads, from the count of the release and what changed."""
    count = release.manifest.data.truncated_documents
    for store, places, sign in ((release.documents, changes.fewer, -1), (documents, changes.more, 1)):
        tokens = encoder.tokenize([store[position].encoded_text for position in places], "document")
        count += sign * sum(times for times, each in zip(places.values(), tokens, strict=True) if each.truncated)
    return count
