"""Encode the texts of a data set: only those not encoded before, longest batches of equal length, with progress."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from taugate.calibration.encoding.cache import CachedEmbedding, EmbeddingCache
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
    """Embed `total` texts in order; one that occurs twice, or was embedded by an earlier run, is encoded once."""
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
