"""Encode a data set with the documents' vectors on disk, shard by shard, never all in memory."""

from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts, encode_queries, warn_of_longer
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import SHARD_ROWS, ShardRecord, corpus_shards, write_record, write_shard
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.progress import Job
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.store import TEXTS
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.places import open_place

_ENCODED = "encoded"  # folder in the spool


def encode_in_shards(
    dataset: Dataset, encoders: Encoders, existing: str | ReusableVectors | None, spool: Path, job: Job
) -> tuple[EncodedTexts, ShardedVectors]:
    """Encode documents into a folder of the spool, or open vectors that `taugate encode` wrote, and encode the queries.

    Args:
        dataset: Documents and queries.
        encoders: Encoders of queries and documents.
        existing: Folder or URL with all vectors, which `taugate encode` wrote, or vectors of some documents; None to
            encode all documents now.
        spool: Folder with the texts, which has to outlive the result.
        job: Reports progress and warnings, and times the stages.

    Returns:
        The data set, and the vectors of its documents.

    Raises:
        InputError: If the embeddings are of other documents or of another encoder.
        EncoderError: If the encoder fails.
    """
    folder = spool / _ENCODED
    with job.stage("encode"):
        if isinstance(existing, str):
            folder.mkdir()
            vectors = ShardedVectors.open(existing, encoders.documents.sha256, folder)
            vectors.check_corpus(existing, spool)
        else:
            vectors = _encoded(encoders.documents, spool, folder, len(dataset.documents), job, existing)
    warn_of_longer(vectors, encoders.documents.config, job)
    # `encode_queries` adds its own time to the stage.
    cache = EmbeddingCache.of(encoders.queries)
    queries = encode_queries(dataset, encoders.queries, cache, job)
    count = len(dataset.documents)
    source = f"encoded {count if existing is None else count - len(existing)} of"
    if isinstance(existing, str):
        source = f"read the vectors in {existing} for"
    job.report(f"{source} {count} documents and encoded {queries.encoded} of {queries.total} queries")
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    encoded = EncodedTexts(
        documents=vectors, lengths=vectors.lengths, truncated_documents=vectors.truncated, **queries.vectors
    )
    return encoded, vectors


def _encoded(
    encoder: ExportedEncoder, spool: Path, folder: Path, total: int, job: Job, reusable: ReusableVectors | None = None
) -> ShardedVectors:
    place = open_place(str(folder))
    records: list[ShardRecord] = []
    with job.task("encoding documents", total) as task, (spool / TEXTS).open("rb") as texts:
        for number, shard in enumerate(corpus_shards(spool, encoder.sha256)):
            reusable_rows = None if reusable is None else reusable.rows(number * SHARD_ROWS, shard.rows)
            if reusable_rows is not None:
                task.skip(len(reusable_rows.places))
            records.append(write_shard(place, shard, encoder, texts.read(shard.size), task.advance, reusable_rows))
    return ShardedVectors(folder, write_record(place, encoder, records))
