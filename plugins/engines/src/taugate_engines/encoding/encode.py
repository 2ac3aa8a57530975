"""Encode a corpus into shards, in this process or by Ray workers; finished shards are not encoded again."""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from taugate.calibration.encoding.encoder_options import announce
from taugate.calibration.encoding.shards import (
    SHARD_ROWS,
    CorpusShard,
    EncodingRecord,
    ShardRecord,
    corpus_shards,
    read_record,
    shard_bytes,
    shard_name,
    write_record,
)
from taugate.calibration.encoding.source import Encoders, RequestedEncoder
from taugate.calibration.progress import Job, Task
from taugate.data.corpus import spool_corpus
from taugate.data.location import local_corpus
from taugate.errors import InputError
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.object_store import Place, open_place
from taugate_engines.encoding.ray_workers import Work, Worker


@dataclass(frozen=True)
class Workers:
    """The processes that encode.

    Attributes:
        count: Number of Ray processes, each with one thread; None for this process alone, on all its processors.
        address: Address of a Ray cluster; None for a cluster on this machine.
    """

    count: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(f"--workers {self.count}: give 1 or more, or leave it out to encode in this process")
        if self.address is not None and self.count is None:
            raise InputError("--ray-address: give --workers too, the number of processes that encode on the cluster")


@dataclass(frozen=True)
class Encoded:
    """A finished encoding."""

    record: EncodingRecord
    encoded: int


def encode_corpus(
    data: str, location: str, requested: RequestedEncoder, workers: Workers, job: Job, shard_rows: int = SHARD_ROWS
) -> Encoded:
    """Encode the documents of a data set. After an error, finished shards are kept.

    Args:
        location: Folder or URL of the encoding; an interrupted one is resumed.
    """
    place = open_place(location)
    existing = read_record(place)
    with tempfile.TemporaryDirectory(prefix="taugate-") as name:
        spool = Path(name)
        with job.stage("export"):
            loaded = Encoders.load(requested.name, requested.input_options, requested.endpoint_options).documents
        if existing is not None and existing.encoder != loaded.sha256:
            raise InputError(f"{location}: holds vectors of another encoder; give another location, or that encoder")
        with job.stage("read"), local_corpus(data) as corpus:
            spool_corpus(corpus, spool)
        texts = (document.encoded_text for document in DocumentStore(spool))
        announce(loaded, texts, (), job, cached=False)
        return encode_spool(spool, location, loaded, workers, job, shard_rows)


def encode_spool(
    spool: Path, location: str, encoder: ExportedEncoder, workers: Workers, job: Job, shard_rows: int = SHARD_ROWS
) -> Encoded:
    """Encode the documents in `spool`, as DocumentWriter wrote it; otherwise like `encode_corpus`."""
    place = open_place(location)
    existing = read_record(place)
    shards = list(corpus_shards(spool, encoder.sha256, shard_rows))
    if existing is not None:
        _check_same(location, existing, shards)
        with job.task("checking the existing shards"):
            if not _remove_damaged(place, existing):
                return Encoded(existing, 0)
    records: dict[int, ShardRecord] = {}
    encoded = 0
    work = Work.on_this_machine(location, encoder, spool)
    with (
        job.task("encoding documents", sum(shard.rows for shard in shards)) as task,
        closing(_encode(work, encoder, shards, workers, job, task)) as finished,
    ):
        for number, record, new in finished:
            records[number] = record
            encoded += new
    written = write_record(place, encoder, [records[number] for number in range(len(shards))], shard_rows)
    return Encoded(written, encoded)


def _encode(
    work: Work, encoder: ExportedEncoder, shards: Sequence[CorpusShard], workers: Workers, job: Job, task: Task
) -> Generator[tuple[int, ShardRecord, bool], None, None]:
    """Yield each shard's number, its record, and whether it was encoded now; advances the task."""
    if workers.count is None:
        worker = Worker(work, encoder)
        for number, shard in enumerate(shards):
            before = task.done
            record, new = worker.encode(shard, task.advance)
            task.done = before + shard.rows
            task.cached += 0 if new else shard.rows
            yield number, record, new
        return
    from taugate_engines.encoding.ray_workers import encode_with_ray  # the extra `ray`

    place, waiting = open_place(work.location), []
    if workers.address is not None:
        waiting = [shard for shard in shards if place.size(shard.name) is None]
        with job.task("copying documents for the workers", sum(shard.rows for shard in waiting)) as copying:
            work = work.shared(waiting, copying.advance)
    with closing(encode_with_ray(work, shards, workers.count, workers.address)) as finished:
        for number, record, new in finished:
            task.advance(record.rows)
            task.cached += 0 if new else record.rows
            yield number, record, new
    if workers.address is not None:
        work.remove_shared(waiting)


def _check_same(location: str, existing: EncodingRecord, shards: Sequence[CorpusShard]) -> None:
    """Raise InputError if the existing encoding is of another corpus; other processes may be reading it."""
    if [shard.key for shard in existing.shards] != [shard.key for shard in shards]:
        raise InputError(f"{location}: holds the vectors of another corpus or shard size; give another location")


def _remove_damaged(place: Place, existing: EncodingRecord) -> int:
    """Remove the shards that differ from the record; returns the number of damaged or missing shards."""
    damaged = 0
    for shard in existing.shards:
        name = shard_name(shard.key)
        try:
            _, digest = place.download(name, None, shard_bytes(shard.rows, existing.dimension))
        except FileNotFoundError:
            digest = ""
        if digest != shard.sha256:
            place.remove(name)
            damaged += 1
    return damaged
