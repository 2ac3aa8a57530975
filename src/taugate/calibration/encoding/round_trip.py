"""Search for a query, and see whether it finds the document that it was made from."""

from collections.abc import Sequence
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import read_corpus
from taugate.ingestion.dataset.judgements import CorpusIds
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.flat import FlatIndex


def found_again(
    corpus: Path, passages: int, queries: Sequence[tuple[str, str]], encoder: str, k: int, watch: Stopwatch
) -> list[bool]:
    """Search for each query by exact search, as a calibration does, and look for its own passage among the first K.

    The whole corpus is encoded. Its vectors are kept in the cache, where a calibration finds them again.

    Args:
        corpus: Path of corpus.jsonl.
        passages: How many it holds.
        queries: Text of each, and the id of the passage that it was made from.
        encoder: Name of a model, or its path.
        k: K, how many passages a search returns.
        watch: That shows the progress.

    Returns:
        Whether each query found its passage.

    Raises:
        EncoderError: .
        InputError: .
        LineError: .
    """
    with watch.task("preparing the encoder"):
        loaded = Encoders.load(encoder)
    ids = CorpusIds()
    texts = (document.encoded_text for document in read_corpus(corpus, ids))
    documents = encode(loaded.documents, texts, passages, "document", _cache_of(loaded.documents), watch)
    asked = encode(
        loaded.queries, [text for text, _ in queries], len(queries), "query", _cache_of(loaded.queries), watch
    )
    with watch.task("searching for each query"):
        top = FlatIndex.build(documents.vectors).search(asked.vectors, k)
    wanted = [ids.passages[passage] for _, passage in queries]
    return [position in row for position, row in zip(wanted, top.positions, strict=True)]


def _cache_of(encoder: OnnxEncoder) -> EmbeddingCache:
    return EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
