"""Encode a corpus into shards: here, or by workers of Ray; what was done before is not done again."""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from taugate.calibration.encoding.source import document_encoder, exported_encoder
from taugate.calibration.encoding.work import Work, Worker
from taugate.calibration.progress import Stopwatch, Task
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import spool_corpus
from taugate.ingestion.dataset.location import local_corpus
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.storage.places import Place, open_place


@dataclass(frozen=True)
class Workers:
    """Who encodes.

    Attributes:
        count: Processes of Ray, each on one thread; None for this process alone, on all of its processors.
        address: Of a Ray cluster; None for one of this machine.
    """

    count: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(f"--workers {self.count}: give 1 or more, or leave it out to encode in this process")
        if self.address is not None and self.count is None:
            raise InputError("--ray-address: say with --workers how many processes encode on the cluster")


@dataclass(frozen=True)
class Encoded:
    """An encoding that is finished.

    Attributes:
        encoded: How many of its shards this run has encoded.
    """

    record: EncodingRecord
    encoded: int


def encode_corpus(
    data: str, location: str, encoder: str, workers: Workers, watch: Stopwatch, shard_rows: int = SHARD_ROWS
) -> Encoded:
    """Encode the documents of a data set.

    Args:
        data: A folder or a URL.
        location: Folder or URL of the encoding; one that was interrupted there is continued.
        encoder: Name or path.
        workers: Who encodes.
        watch: Stopwatch that shows the progress.
        shard_rows: Documents a shard.

    Raises:
        InputError: ; shards that are finished stay.
        EncoderError: ; shards that are finished stay.
        StoreError: ; shards that are finished stay.
        OSError: ; shards that are finished stay.
    """
    place = open_place(location)
    known = read_record(place)
    with tempfile.TemporaryDirectory(prefix="taugate-") as name:
        spool = Path(name)
        with watch.stage("export"):
            loaded = OnnxEncoder.load(document_encoder(encoder) or exported_encoder(encoder))
        if known is not None and known.encoder != loaded.sha256:
            raise InputError(f"{location}: holds vectors of another encoder; name another place, or that encoder")
        with watch.stage("read"), local_corpus(data) as corpus:
            spool_corpus(corpus, spool)
        return encode_spool(spool, location, loaded, workers, watch, shard_rows)


def encode_spool(
    spool: Path,
    location: str,
    encoder: OnnxEncoder,
    workers: Workers,
    watch: Stopwatch,
    shard_rows: int = SHARD_ROWS,
) -> Encoded:
    """Encode documents that are spooled already.

    Args:
        spool: As DocumentWriter wrote it. The rest as `encode_corpus`.
    """
    place = open_place(location)
    known = read_record(place)
    shards = list(corpus_shards(spool, encoder.sha256, shard_rows))
    if known is not None:
        _check_same(location, known, shards)
        with watch.task("checking what is there"):
            if not _remove_damaged(place, known):
                return Encoded(known, 0)
    records: dict[int, ShardRecord] = {}
    encoded = 0
    work = Work.here(location, encoder, spool)
    with (
        watch.task("encoding documents", sum(each.rows for each in shards)) as task,
        closing(_encode(work, encoder, shards, workers, watch, task)) as finished,
    ):
        for number, record, new in finished:
            records[number] = record
            encoded += new
    written = write_record(place, encoder, [records[number] for number in range(len(shards))], shard_rows)
    return Encoded(written, encoded)


def _encode(
    work: Work, encoder: OnnxEncoder, shards: Sequence[CorpusShard], workers: Workers, watch: Stopwatch, task: Task
) -> Generator[tuple[int, ShardRecord, bool], None, None]:
    """Yield number, record and whether it was encoded of each shard, and count what is done of the task."""
    if workers.count is None:
        worker = Worker(work, encoder)
        for number, shard in enumerate(shards):
            before = task.done
            record, new = worker.encode(shard, partial(_advance, task))
            task.done = before + shard.rows
            task.known += 0 if new else shard.rows
            yield number, record, new
        return
    from taugate.calibration.encoding.ray_workers import encode_with_ray  # the extra `ray`

    place, waiting = open_place(work.location), []
    if workers.address is not None:
        waiting = [shard for shard in shards if place.size(shard.name) is None]
        with watch.task("handing out documents", sum(each.rows for each in waiting)) as handing:
            work = work.shared(waiting, partial(_advance, handing))
    with closing(encode_with_ray(work, shards, workers.count, workers.address)) as finished:
        for number, record, new in finished:
            task.done += record.rows
            task.known += 0 if new else record.rows
            yield number, record, new
    if workers.address is not None:
        work.forget(waiting)


def _advance(task: Task, documents: int) -> None:
    task.done += documents


def _check_same(location: str, known: EncodingRecord, shards: Sequence[CorpusShard]) -> None:
    """Raise InputError where an encoding that is there is not that of this corpus: others may be reading it."""
    if [each.key for each in known.shards] != [each.key for each in shards]:
        raise InputError(f"{location}: holds the vectors of another corpus or shard size; name another place")


def _remove_damaged(place: Place, known: EncodingRecord) -> int:
    """Remove the shards that are not what the record says, and return how many are damaged or missing."""
    wrong = 0
    for shard in known.shards:
        name = shard_name(shard.key)
        try:
            _, digest = place.download(name, None, shard_bytes(shard.rows, known.dimension))
        except FileNotFoundError:
            digest = ""
        if digest != shard.sha256:
            place.remove(name)
            wrong += 1
    return wrong
