"""Documents ranked by their best chunk, for each size and overlap, kept in a file so that nothing is ranked twice."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.chunks.encoders import StudyEncoder
from benchmarks.chunks.study_sets import StudySet
from taugate.calibration.metrics.documents import grades_of
from taugate.ingestion.chunks.chunker import Chunker
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import read_tensors, write_tensors

K = 10  # documents that are ranked: NDCG@10 looks at all, accuracy@5 at the first five
WINDOW = 256  # tokens that all-MiniLM-L6-v2 reads
_QUERIES = 128  # that are compared with all chunks at once
_PARALLEL = 2_000  # below so many documents, new processes would take longer than the work


@dataclass(frozen=True, slots=True)
class Setting:
    """Size and overlap of chunks.

    Attributes:
        size: Of a chunk in tokens, with its title and special tokens; None for whole documents, cut off at the window.
        overlap: Tokens that a chunk repeats from the one before it.
    """

    size: int | None = None
    overlap: int = 0

    def __str__(self) -> str:
        return "no chunks" if self.size is None else f"{self.size}, overlap {self.overlap}"


WHOLE = Setting()
SIZES = (64, 128, WINDOW)
# The overlap of a chunk is whole sentences: an eighth of a small chunk would be none.
SETTINGS = [WHOLE, *(Setting(size, overlap) for size in SIZES for overlap in (0, size // 4, size // 2))]


@dataclass(frozen=True)
class Ranking:
    """What the queries of a set find in one setting.

    Attributes:
        grades: (q, K) int8, the grade of each query's best documents, 0 where one is not relevant.
        chunks: How many were searched.
        place: What encoded them.
    """

    grades: NDArray[np.int8]
    chunks: int
    place: str


class Rankings:
    """Rankings by set and setting, read from a file or computed and added to it.

    Attributes:
        path: Of the safetensors file.
        load: Loads the encoder, for what the file does not hold.
        tokenizer: The encoder's own, which does not truncate.
    """

    def __init__(self, path: Path, load: Callable[[], StudyEncoder], tokenizer: Tokenizer) -> None:
        self._path = path
        self._encoder = cache(load)
        self._tokenizer = tokenizer
        self._arrays = read_tensors(path) if path.exists() else {}

    def ranking(self, name: str, study_set: StudySet, setting: Setting) -> Ranking:
        """Rank the documents of a set for its queries.

        Args:
            name: Of the set.
            study_set: It.
            setting: How it is cut.
        """
        key = f"{name}/{setting}/"
        if f"{key}grades" not in self._arrays:
            texts, starts = chunk_texts(study_set.documents, setting, self._tokenizer)
            encoder = self._encoder()
            queries = encoder.embed([query.text for query in study_set.queries], "query")
            positions = best_documents(queries, encoder.embed(texts, "document"), starts)
            self._arrays |= {
                f"{key}grades": grades_of(study_set.queries, positions, None).astype(np.int8),
                f"{key}chunks": np.array([len(texts)]),
                f"{key}place": np.frombuffer(encoder.place.encode(), dtype=np.uint8),
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(self._path, self._arrays)
            print(f"{name}: {setting}: {len(texts)} chunks", flush=True)
        place = bytes(self._arrays[f"{key}place"]).decode()
        return Ranking(self._arrays[f"{key}grades"], int(self._arrays[f"{key}chunks"][0]), place)


def token_counts(documents: Sequence[ParsedDocument], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Count the tokens of each document, with its title and the special tokens; (N,).

    Args:
        tokenizer: Does not truncate.
    """
    texts = [_encoded_text(document.title, document.text) for document in documents]
    return np.array([len(encoding.ids) for encoding in tokenizer.encode_batch(texts)])


def chunk_texts(
    documents: Sequence[ParsedDocument], setting: Setting, tokenizer: Tokenizer
) -> tuple[list[str], NDArray[np.int64]]:
    """Cut documents as `taugate import` does.

    Args:
        documents: N of them.
        setting: How they are cut.
        tokenizer: The encoder's own, which does not truncate.

    Returns:
        The texts to encode, chunks of one document side by side, and (N,) where each document's chunks begin.
    """
    if setting.size is None:
        return [_encoded_text(document.title, document.text) for document in documents], np.arange(len(documents))
    cut = partial(_cut, Chunker(tokenizer, WINDOW, setting.size, setting.overlap))
    if len(documents) < _PARALLEL:
        parts = list(map(cut, documents))
    else:
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"), _begin) as pool:
            parts = list(pool.map(cut, documents, chunksize=100))
    counts = np.array([len(part) for part in parts])
    return [text for part in parts for text in part], np.cumsum(counts) - counts


def best_documents(queries: Float32, chunks: Float32, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank documents by the similarity of their best chunk; ties go to the lower position.

    Args:
        queries: (q, d) unit vectors.
        chunks: (c, d) unit vectors, those of one document side by side.
        starts: (N,) where each document's chunks begin.

    Returns:
        (q, min(K, N)) positions of documents, best first.
    """
    k = min(K, len(starts))
    ranked = np.empty((len(queries), k), dtype=np.int64)
    for first in range(0, len(queries), _QUERIES):
        scores = np.maximum.reduceat(queries[first : first + _QUERIES] @ chunks.T, starts, axis=1)
        least = np.partition(scores, -k, axis=1)[:, -k]
        for row, (score, limit) in enumerate(zip(scores, least, strict=True), start=first):
            candidates = np.flatnonzero(score >= limit)
            ranked[row] = candidates[np.argsort(-score[candidates], kind="stable")[:k]]
    return ranked


def _begin() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every processor has a process of its own already


def _cut(chunker: Chunker, document: ParsedDocument) -> list[str]:
    return [_encoded_text(chunk.title, document.text[chunk.start : chunk.end]) for chunk in chunker.chunks(document)]


def _encoded_text(title: str, text: str) -> str:
    """Join title and text as every passage of a release is encoded."""
    return f"{title} {text}" if title else text
