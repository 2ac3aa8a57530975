"""Encodes the tokens of a data set's documents for late interaction."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.changes import UNKNOWN
from taugate.calibration.progress import Job
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.rerank.largest_products import CodedTokens, coded
from taugate.retrieval.rerank.late_interaction import TokenVectors, write_token_vectors
from taugate.retrieval.rerank.token_encoder import TokenEncoder
from taugate.retrieval.vectors.similarity import Float32

_BLOCK = 256  # documents encoded together: 20 MB of vectors of 128 dimensions if they have 150 tokens


class EarlierTokens(NamedTuple):
    """Token vectors of an earlier corpus, and (N,) int64 positions in it by position, UNKNOWN for a new text."""

    vectors: TokenVectors
    sources: NDArray[np.int64]


def encode_tokens(
    encoder: TokenEncoder, documents: Documents, path: Path, job: Job, earlier: EarlierTokens | None
) -> TokenVectors:
    """Write the token vectors of all documents to a file.

    Args:
        encoder: Encodes the documents.
        documents: The documents by position.
        path: The file.
        job: Shows the progress.
        earlier: Vectors that need not be computed, and the weights of tokens, which an update keeps; None if all do.
    """
    if earlier is not None:
        weights = earlier.vectors.weights
    else:
        weights = rarity(_ids(encoder, documents), encoder.vocabulary) if encoder.config.weighted else None
    write_token_vectors(path, _coded(encoder, documents, job, earlier), weights)
    return TokenVectors(path, encoder.config.dimension)


def _blocks(count: int) -> Iterator[NDArray[np.int64]]:
    return (np.arange(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _coded(
    encoder: TokenEncoder, documents: Documents, job: Job, earlier: EarlierTokens | None
) -> Iterator[CodedTokens]:
    """Yield the token vectors of one document after the other."""
    sources = np.full(len(documents), UNKNOWN) if earlier is None else earlier.sources
    with job.task("encoding tokens", len(documents)) as task:
        for block in _blocks(len(documents)):
            new = documents.at(block[sources[block] == UNKNOWN])
            encoded = iter(encoder.encode([document.encoded_text for document in new], "document"))
            for source in sources[block].tolist():
                if earlier is None or source == UNKNOWN:
                    yield coded(next(encoded).vectors)
                else:
                    yield earlier.vectors[source]
            task.advance(len(block))


def _ids(encoder: TokenEncoder, documents: Documents) -> Iterator[list[int]]:
    for block in _blocks(len(documents)):
        yield from encoder.tokenize([document.encoded_text for document in documents.at(block)], "document")


def rarity(documents: Iterable[Sequence[int]], vocabulary: int) -> Float32:
    """Return the weight of each token id, (vocabulary,) float32: log((N + 1) / (n + ½)) if n of N documents have it.

    A token that no document has weighs as one that a single document has, so that no weight tells of one document.

    Args:
        documents: Token ids of the documents.
        vocabulary: Number of token ids.
    """
    counts, size = np.zeros(vocabulary, dtype=np.int64), 0
    for size, ids in enumerate(documents, start=1):  # noqa: B007 (counts them)
        counts[np.unique(ids)] += 1
    weights: Float32 = np.log((size + 1) / (np.maximum(counts, 1) + 0.5)).astype(np.float32)
    return weights
