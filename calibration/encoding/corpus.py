"""Every text of a data set as a vector, with a word on what was cut off and what the cache saved."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.encode import encode
from taugate.calibration.stopwatch import Stopwatch
from taugate.ingestion.dataset.dataset import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class EncodedDataset:
    """Vectors in the order of the data set, each (n, d) float32.

    off_topic: those of questions that no document answers, none where the data set has unanswerable queries of its own;
    lengths: (N,) bytes of each document's text, title included; truncated_documents: longer than the encoder reads.
    """

    documents: Float32
    answerable: Float32
    unanswerable: Float32
    off_topic: Float32
    lengths: NDArray[np.int64]
    truncated_documents: int


def encode_dataset(
    dataset: Dataset, encoder: OnnxEncoder, cache: EmbeddingCache, say: Callable[[str], None], watch: Stopwatch
) -> EncodedDataset:
    """Encode documents and queries; the time spent in the encoder is added to the stage "encode"."""
    documents = encode(
        encoder, (document.encoded_text for document in dataset.documents), len(dataset.documents), "document", cache
    )
    labelled = dataset.answerable + dataset.unanswerable
    queries = encode(encoder, (query.text for query in labelled), len(labelled), "query", cache)
    off_topic = encode(encoder, dataset.off_topic, len(dataset.off_topic), "query", cache)
    watch.add("encode", documents.seconds + queries.seconds + off_topic.seconds)
    say(
        f"encoded {documents.encoded} of {len(dataset.documents)} documents and {queries.encoded} of {len(labelled)} "
        "queries; the others were known already"
    )
    if cache.failure:
        say(f"warning: no embedding cache: {cache.failure}")
    if documents.truncated:
        say(
            f"warning: {documents.truncated} of {len(dataset.documents)} documents are longer than the "
            f"{encoder.config.max_length} tokens that the encoder reads; what follows is not searched"
        )
    answerable = len(dataset.answerable)
    return EncodedDataset(
        documents.vectors,
        queries.vectors[:answerable],
        queries.vectors[answerable:],
        off_topic.vectors,
        documents.lengths,
        documents.truncated,
    )
