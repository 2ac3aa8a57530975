"""The encoding of one shard by a worker, and the job description that a worker needs.

A worker is this process, another process, or one on another machine; the result is the same for all of them.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from taugate.calibration.encoding.shards import CorpusShard, ShardRecord, finished_shard, write_shard
from taugate.errors import InputError
from taugate.release.encoder import DATA, LAYOUT
from taugate.release.layout import TEXTS
from taugate.retrieval.encoder.encoder import GRAPH_FILES, ExportedEncoder
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.hardware import onnxruntime_version
from taugate.storage.object_store import Place, open_place

_WAITING = "waiting"  # folder of the encoder and the documents for other machines, until everything is encoded
_ENCODER_FILES = (*GRAPH_FILES, DATA, LAYOUT)  # those that exist
_MAX_FILE_BYTES = 1 << 40  # of a file of the encoder, which this command has written
_PACKAGES = ("taugate", "onnxruntime", "tokenizers")  # with the processor, they decide the bits of a vector


@dataclass(frozen=True)
class Work:
    """An encoding job, described without objects of this process.

    Attributes:
        spool: Folder of the corpus on this machine; None if workers read it from `location`.
        folder: Folder of the encoder on this machine; None if workers read it from `location`.
    """

    location: str
    encoder: str
    dimension: int
    spool: str | None
    folder: str | None
    versions: tuple[str, ...]

    @classmethod
    def on_this_machine(cls, location: str, encoder: ExportedEncoder, spool: Path) -> "Work":
        """Describe the job for workers on this machine; `spool` has the corpus, as DocumentWriter wrote it."""
        anywhere = location if "://" in location else str(Path(location).absolute())
        return cls(anywhere, encoder.sha256, encoder.config.dimension, str(spool), str(encoder.folder), _versions())

    def shared(self, shards: Sequence[CorpusShard], progress: Callable[[int], object]) -> "Work":
        """Copy the encoder and the documents to the location of the encoding, and describe the job for any machine.

        Documents that an earlier run has copied are not copied again.

        Args:
            progress: Called with the number of documents just copied.
        """
        assert self.spool is not None and self.folder is not None  # noqa: S101 (narrows the type)
        place = open_place(self.location)
        for name in _ENCODER_FILES:
            if (Path(self.folder) / name).is_file():
                place.write(self._encoder_name(name), (Path(self.folder) / name).read_bytes())
        for shard in shards:
            if place.size(_documents_name(shard)) != shard.size:
                place.write(_documents_name(shard), self.documents(place, shard))
            progress(shard.rows)
        return Work(self.location, self.encoder, self.dimension, None, None, self.versions)

    def documents(self, place: Place, shard: CorpusShard) -> bytes:
        """Return the documents of a shard as JSON lines."""
        if self.spool is None:
            try:
                return place.read(_documents_name(shard), shard.size)
            except FileNotFoundError as error:
                raise InputError(
                    f"{self.location}/{shard.name}: is damaged; remove it and run taugate encode again"
                ) from error
        with (Path(self.spool) / TEXTS).open("rb") as file:
            return os.pread(file.fileno(), shard.size, shard.start)

    def remove_shared(self, shards: Sequence[CorpusShard]) -> None:
        """Remove the copies that `shared` has made."""
        place = open_place(self.location)
        for shard in shards:
            place.remove(_documents_name(shard))
        for name in _ENCODER_FILES:
            place.remove(self._encoder_name(name))

    def _encoder_name(self, name: str) -> str:
        return f"{_WAITING}/encoder/{self.encoder[:16]}/{name}"


class Worker:
    """Encodes shards one after the other.

    Args:
        encoder: An encoder that is already loaded; None to load it at the first shard, with one thread.
    """

    def __init__(self, work: Work, encoder: ExportedEncoder | None = None) -> None:
        self._work = work
        self._place = open_place(work.location)
        if encoder is not None:
            self._encoder = encoder

    @cached_property
    def _encoder(self) -> ExportedEncoder:
        """The encoder; raises InputError if it, or a package of this machine, differs from the job's."""
        work = self._work
        if _versions() != work.versions:
            named = ", ".join(f"{name} {installed}" for name, installed in zip(_PACKAGES, _versions(), strict=True))
            raise InputError(
                f"a worker has {named}, but the command has {', '.join(work.versions)}; install the same everywhere"
            )
        if work.folder is not None:
            return self._checked(Path(work.folder))
        with tempfile.TemporaryDirectory(prefix="taugate-encoder-") as folder:
            for name in _ENCODER_FILES:
                if self._place.size(work._encoder_name(name)) is not None:
                    with (Path(folder) / name).open("wb") as file:
                        self._place.download(work._encoder_name(name), file, _MAX_FILE_BYTES)
            return self._checked(Path(folder))

    def _checked(self, folder: Path) -> ExportedEncoder:
        encoder = load_encoder(folder, threads=1)
        if encoder.sha256 != self._work.encoder:
            raise InputError(f"{folder}: the encoder changed during the encoding; run taugate encode again")
        return encoder

    def encode(self, shard: CorpusShard, progress: Callable[[int], object] | None = None) -> tuple[ShardRecord, bool]:
        """Return the record of a shard, and whether it was encoded now or was already complete.

        Args:
            progress: Called with the number of texts just encoded.
        """
        record = finished_shard(self._place, shard, self._work.dimension)
        if record is not None:
            return record, False
        documents = self._work.documents(self._place, shard)
        return write_shard(self._place, shard, self._encoder, documents, progress), True


def _documents_name(shard: CorpusShard) -> str:
    return f"{_WAITING}/{shard.key}.jsonl"


def _versions() -> tuple[str, ...]:
    return version("taugate"), onnxruntime_version(), version("tokenizers")
