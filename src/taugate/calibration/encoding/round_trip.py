"""Check whether generated queries retrieve the passages they were made from."""

from collections.abc import Sequence
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.progress import Job
from taugate.ingestion.dataset.beir import read_corpus
from taugate.ingestion.dataset.judgements import CorpusIds
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.flat import FlatIndex


def check_round_trips(
    corpus: Path, passages: int, queries: Sequence[tuple[str, str]], encoder: str, k: int, job: Job
) -> list[bool]:
    """Search exactly for each query, and check whether its source passage is among the first K.

    The whole corpus is encoded; its vectors go to the cache, so a later calibration reuses them.

    Args:
        corpus: Path of corpus.jsonl.
        passages: Number of passages in the corpus.
        queries: Text of each query, and the id of its source passage.
        encoder: Name or path of a model.
        k: K, number of passages that a search returns.
        job: Shows the progress.

    Returns:
        For each query, whether it retrieves its source passage.

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
