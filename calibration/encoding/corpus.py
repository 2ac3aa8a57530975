"""Encode every text of a data set, and say what was cut off and what the cache saved."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from taugate.calibration.encoding.cache import CachedEmbedding, EmbeddingCache
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.vectors.similarity import Float32

# Texts a block: what is lost when the job is killed, and how many texts are in memory at once.
_BLOCK = 8192


@dataclass(frozen=True)
class Embeddings:
    """Vectors of n texts.

    vectors: (n, d) float32; lengths: (n,) bytes of each text in UTF-8; truncated: texts longer than the encoder reads;
    encoded: texts that were not known yet; seconds: time in the encoder, tokenizer included.
    """

    vectors: Float32
    lengths: NDArray[np.int64]
    truncated: int
    encoded: int
    seconds: float


def encode(encoder: OnnxEncoder, texts: Iterable[str], total: int, role: Role, cache: EmbeddingCache) -> Embeddings:
    """Embed texts in order; one that occurs twice, or was embedded by an earlier run, is encoded once.

    encoder: that embeds; texts: `total` of them; total: how many; role: query or document; cache: of this encoder.
    """
    vectors = np.empty((total, encoder.config.dimension), dtype=np.float32)
    lengths = np.zeros(total, dtype=np.int64)
    remaining = iter(texts)
    prompt = encoder.config.query_prompt if role == "query" else encoder.config.document_prompt
    truncated = encoded = 0
    seconds = 0.0
    name = {"query": "queries", "document": "documents"}[role]
    with tqdm(total=total, desc=f"encode {name}", file=sys.stderr, disable=None, unit="") as bar:
        for start in range(0, total, _BLOCK):
            block = list(islice(remaining, _BLOCK))
            lengths[start : start + len(block)] = [len(text.encode()) for text in block]
            keys = [cache.key(prompt + text) for text in block]
            known = cache.get(keys)
            new = {key: text for key, text in zip(keys, block, strict=True) if key not in known}
            bar.update(len(block) - len(new))
            began = time.perf_counter()
            tokens = encoder.tokenize(list(new.values()), role)
            fresh = encoder.embed(tokens, bar.update)
            seconds += time.perf_counter() - began
            added = {
                key: CachedEmbedding(vector, token.truncated)
                for key, vector, token in zip(new, fresh, tokens, strict=True)
            }
            cache.put(added)
            known |= added
            encoded += len(added)
            truncated += sum(known[key].truncated for key in keys)
            vectors[start : start + len(block)] = [known[key].vector for key in keys]
    return Embeddings(vectors, lengths, truncated, encoded, seconds)


@dataclass(frozen=True)
class EncodedDataset:
    """Vectors of a data set, in its order.

    documents: (N, d), answerable: (n, d), unanswerable: (u, d) and off_topic: float32; off_topic are questions that no
    document answers, none where the data set has unanswerable queries of its own; lengths: (N,) bytes of each
    document's text, title included; truncated_documents: longer than the encoder reads.
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
    """Encode documents and queries.

    dataset: documents and queries; encoder: that embeds; cache: of this encoder; say: told one line of progress or
    warning at a time; watch: stopwatch whose stage "encode" grows by the time spent in the encoder.
    """
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
