"""Whether an encoder suits the texts: words it cannot read, texts it truncates, generated queries it finds again."""

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import Encoders, model_folder
from taugate.calibration.export.model_folder import ModelFolder
from taugate.calibration.progress import Job, percent
from taugate.data.beir import Dataset
from taugate.data.corpus import read_corpus
from taugate.data.judgements import CorpusIds
from taugate.errors import EncoderError
from taugate.release.layout import MANIFEST
from taugate.release.records import EncoderFitRecord, TrainedSimilarity
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.flat import FlatIndex

# Documents examined, spread evenly over the corpus; all of a small one. Tokenizing this many of 256 tokens takes two
# seconds, and gives a share to ±.014 (95 %).
_MAX_DOCUMENTS = 5000
_BLOCK = 512


def encoder_fit(
    dataset: Dataset,
    document_encoder: ExportedEncoder,
    query_encoder: ExportedEncoder,
    trained: TrainedSimilarity | None,
) -> EncoderFitRecord | None:
    """Measure how an encoder misfits the texts of a data set; None if it fits.

    Args:
        trained: The similarity that the encoder was trained for, None for cosine.
    """
    examined, unreadable, indistinct = _documents(dataset.documents, document_encoder)
    queries = [query.text for query in dataset.answerable + dataset.unanswerable]
    tokens = query_encoder.tokenize(queries, "query")
    record = EncoderFitRecord(
        documents=examined,
        unreadable_documents=unreadable,
        indistinct_documents=indistinct,
        queries=len(queries),
        truncated_queries=sum(text_tokens.truncated for text_tokens in tokens),
        unreadable_queries=sum(text_tokens.unreadable for text_tokens in tokens),
        trained_similarity=trained,
    )
    return record if record.is_notable else None


def _documents(documents: Documents, encoder: ExportedEncoder) -> tuple[int, int, int]:
    """Count the documents examined, the unreadable ones, and those with the vector of another text."""
    positions = np.unique(np.linspace(0, len(documents) - 1, min(len(documents), _MAX_DOCUMENTS)).astype(np.int64))
    unreadable = 0
    alike: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)  # texts with unknown words, by their tokens
    for first in range(0, len(positions), _BLOCK):
        texts = [documents[position].encoded_text for position in positions[first : first + _BLOCK].tolist()]
        for text, tokens in zip(texts, encoder.tokenize(texts, "document"), strict=True):
            unreadable += tokens.unreadable
            if tokens.unread and not tokens.truncated:
                alike[tuple(tokens.ids)].append(text)
    indistinct = sum(len(texts) for texts in alike.values() if len({*texts}) > 1)
    return len(positions), unreadable, indistinct


def trained_similarity(name_or_path: str) -> TrainedSimilarity | None:
    """Return the similarity that an encoder was trained for; None if cosine is equivalent or the similarity is unknown.

    Args:
        name_or_path: A sentence-transformers model, or the encoder folder of a release, whose manifest records it.
    """
    path = Path(name_or_path)
    with suppress(OSError, ValueError, LookupError, TypeError):
        if (manifest := path.parent / MANIFEST).is_file():
            recorded = json.loads(manifest.read_bytes())["encoder_fit"]["trained_similarity"]
            return next((similarity for similarity in get_args(TrainedSimilarity) if similarity == recorded), None)
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, EncoderError):
        return ModelFolder.read(model_folder(name_or_path), name_or_path).trained_for(name_or_path)
    return None


def encoder_fit_warnings(record: EncoderFitRecord | None, encoder: str, window: int) -> list[str]:
    """Return one sentence per problem; none if the record is None."""
    if record is None:
        return []
    warnings = []
    if (trained := record.trained_similarity) is not None:
        words = "the dot product" if trained == "dot" else f"{trained} distance"
        warnings.append(
            f"the encoder {encoder} was trained for {words} and does not normalize its vectors, but they are compared "
            "by cosine, which ignores their lengths; "
            + ('give similarity = "dot", or ' if trained == "dot" else "")
            + "compare its accuracy with that of an encoder trained for cosine"
        )
    if record.unreadable_documents:
        warnings.append(
            f"the encoder cannot read {_of(record.unreadable_documents, record.documents, 'documents')}: most of their "
            "text is unknown tokens, so their similarities mean nothing; choose an encoder for their language"
        )
    if record.indistinct_documents:
        warnings.append(
            f"{_of(record.indistinct_documents, record.documents, 'documents')} have the same vector as another text, "
            "because they differ only in words that the encoder does not know; choose an encoder for their language"
        )
    if record.unreadable_queries:
        warnings.append(
            f"the encoder cannot read {_of(record.unreadable_queries, record.queries, 'labelled queries')}: most of "
            "their text is unknown tokens; the service refuses such queries as `unreadable`"
        )
    if record.truncated_queries:
        warnings.append(
            f"{_of(record.truncated_queries, record.queries, 'labelled queries')} are longer than the encoder's "
            f"{window:,} tokens; the rest of the query is ignored, and the reply says `truncated`"
        )
    return warnings


def _of(part: int, total: int, what: str) -> str:
    return f"{part:,} of {total:,} {what} ({percent(part / total)})"


def check_round_trips(
    corpus: Path, passages: int, queries: Sequence[tuple[str, str]], encoder: str, k: int, job: Job
) -> list[bool]:
    """Search exactly for each query, and check whether its source passage is among the first K.

    The whole corpus is encoded; its vectors go to the cache, so a later calibration reuses them.

    Args:
        queries: Text of each query, and the id of its source passage.

    Raises:
        EncoderError: If the encoder cannot be loaded.
        InputError: If the corpus cannot be read.
        LineError: If a line of the corpus is invalid.
    """
    with job.task("preparing the encoder"):
        loaded = Encoders.load(encoder)
    ids = CorpusIds()
    texts = (document.encoded_text for document in read_corpus(corpus, ids))
    documents = encode(loaded.documents, texts, passages, "document", _cache_of(loaded.documents), job)
    query_vectors = encode(
        loaded.queries, [text for text, _ in queries], len(queries), "query", _cache_of(loaded.queries), job
    )
    with job.task("searching for each query"):
        top = FlatIndex.build(documents.vectors).search(query_vectors.vectors, k)
    sources = [ids.passages[passage] for _, passage in queries]
    return [position in row for position, row in zip(sources, top.positions, strict=True)]


def _cache_of(encoder: ExportedEncoder) -> EmbeddingCache:
    return EmbeddingCache.of(encoder)
