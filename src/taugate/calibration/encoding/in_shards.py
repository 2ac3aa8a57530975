"""Encode a data set whose documents' vectors never are in memory all at once: they are on disk, shard by shard."""

from collections.abc import Callable
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import KnownVectors
from taugate.calibration.encoding.corpus import EncodedTexts, encode_queries
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import SHARD_ROWS, ShardRecord, corpus_shards, write_record, write_shard
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.store import TEXTS
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.storage.places import open_place

_ENCODED = "encoded"  # folder in the spool


def encode_in_shards(  # noqa: PLR0913, PLR0917 (what there is, and where)
    dataset: Dataset,
    encoders: Encoders,
    embeddings: str | None,
    spool: Path,
    say: Callable[[str], None],
    watch: Stopwatch,
    known: KnownVectors | None = None,
) -> tuple[EncodedTexts, ShardedVectors]:
    """Encode documents to a folder of the spool, or read them where they were encoded, and encode the queries.

    Args:
        dataset: Documents and queries.
        encoders: That embed.
        embeddings: Where `taugate encode` has written the vectors of these documents, a folder or a URL, None where
            they are encoded here.
        spool: Folder with the texts, which has to outlive the result.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stage "encode" grows.
        known: Vectors of documents that are not encoded here again, None for none.

    Returns:
        The data set, and the vectors of its documents.

    Raises:
        InputError: Where the embeddings are of other documents or of another encoder, and EncoderError.
    """
    folder = spool / _ENCODED
    with watch.stage("encode"):
        if embeddings is None:
            vectors = _encoded(encoders.documents, spool, folder, len(dataset.documents), watch, known)
        else:
            folder.mkdir()
            vectors = ShardedVectors.open(embeddings, encoders.documents.sha256, folder)
            vectors.check_corpus(embeddings, spool)
    # `encode_queries` adds its own time to the stage.
    cache = EmbeddingCache.for_encoder(encoders.queries.sha256, encoders.queries.config.dimension)
    queries = encode_queries(dataset, encoders.queries, cache, watch)
    count = len(dataset.documents)
    source = f"encoded {count if known is None else count - len(known)} of"
    if embeddings is not None:
        source = f"read the vectors of {embeddings} for"
    say(f"{source} {count} documents, and encoded {queries.encoded} of {queries.asked} queries")
    if cache.failure:
        say(f"warning: no embedding cache: {cache.failure}")
    encoded = EncodedTexts(
        vectors,
        queries.answerable,
        queries.unanswerable,
        queries.off_topic,
        vectors.lengths,
        vectors.truncated,
        queries.unjudged,
        queries.generated,
    )
    return encoded, vectors


def _encoded(
    encoder: OnnxEncoder, spool: Path, folder: Path, total: int, watch: Stopwatch, known: KnownVectors | None = None
) -> ShardedVectors:
    place = open_place(str(folder))
    records: list[ShardRecord] = []
    with watch.task("encoding documents", total) as task, (spool / TEXTS).open("rb") as texts:

        def advance(count: int) -> None:
            task.done += count

        for number, shard in enumerate(corpus_shards(spool, encoder.sha256)):
            there = None if known is None else known.rows(number * SHARD_ROWS, shard.rows)
            if there is not None:
                task.known += len(there.places)
                advance(len(there.places))
            records.append(write_shard(place, shard, encoder, texts.read(shard.size), advance, there))
    return ShardedVectors(folder, write_record(place, encoder, records))
