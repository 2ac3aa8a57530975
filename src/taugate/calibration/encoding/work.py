"""What a worker needs to encode a shard, and the one way in which every worker does it.

A worker is this process, a process beside it, or one on another machine: which of them cannot show in the result.
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
from taugate.retrieval.documents.store import TEXTS
from taugate.retrieval.encoder.encoder import FILES, OnnxEncoder
from taugate.storage.places import Place, open_place

_WAITING = "waiting"  # what other machines need until all is encoded
_MODEL_BYTES = 2 << 30  # the most that an ONNX file has
_PACKAGES = ("taugate", "onnxruntime", "tokenizers")  # what decides the bits of a vector, beside the processor


@dataclass(frozen=True)
class Work:
    """What is to be encoded, in words that any machine understands.

    Attributes:
        location: Of the encoding.
        encoder: SHA-256 of the encoder's files.
        dimension: Of its vectors.
        spool: With the corpus and with the encoder, on this machine; None where workers on other machines read them at
            `location`.
        folder: With the corpus and with the encoder, on this machine; None where workers on other machines read them at
            `location`.
        versions: Of the packages that encode.
    """

    location: str
    encoder: str
    dimension: int
    spool: str | None
    folder: str | None
    versions: tuple[str, ...]

    @classmethod
    def here(cls, location: str, encoder: OnnxEncoder, spool: Path) -> "Work":
        """Describe work for this machine.

        Args:
            spool: Folder with the corpus, as DocumentWriter wrote it.
        """
        anywhere = location if "://" in location else str(Path(location).absolute())
        return cls(anywhere, encoder.sha256, encoder.config.dimension, str(spool), str(encoder.folder), _versions())

    def shared(self, shards: Sequence[CorpusShard], progress: Callable[[int], object]) -> "Work":
        """Put the encoder and the documents beside the encoding, and describe work for any machine.

        Documents that an earlier run has put there stay.

        Args:
            shards: To be encoded.
            progress: Called with the number of documents that were just put there.
        """
        assert self.spool is not None and self.folder is not None  # noqa: S101 (narrows the type)
        place = open_place(self.location)
        for name in FILES:
            place.write(self._encoder_name(name), (Path(self.folder) / name).read_bytes())
        for shard in shards:
            if place.size(_documents_name(shard)) != shard.size:
                place.write(_documents_name(shard), self.documents(place, shard))
            progress(shard.rows)
        return Work(self.location, self.encoder, self.dimension, None, None, self.versions)

    def documents(self, place: Place, shard: CorpusShard) -> bytes:
        """Return the documents of a shard as JSON lines.

        Args:
            place: Of the encoding.

        Raises:
            InputError: .
        """
        if self.spool is None:
            try:
                return place.read(_documents_name(shard), shard.size)
            except FileNotFoundError as error:
                raise InputError(
                    f"{self.location}/{shard.name}: is damaged; remove it, and run taugate encode again"
                ) from error
        with (Path(self.spool) / TEXTS).open("rb") as file:
            return os.pread(file.fileno(), shard.size, shard.start)

    def forget(self, shards: Sequence[CorpusShard]) -> None:
        """Remove what `shared` has put beside the encoding."""
        place = open_place(self.location)
        for shard in shards:
            place.remove(_documents_name(shard))
        for name in FILES:
            place.remove(self._encoder_name(name))

    def _encoder_name(self, name: str) -> str:
        return f"{_WAITING}/encoder/{self.encoder[:16]}/{name}"


class Worker:
    """Encodes shards one after the other; its encoder is loaded once, on one thread.

    Attributes:
        work: What is encoded.
        encoder: That is loaded already, where there is one.
    """

    def __init__(self, work: Work, encoder: OnnxEncoder | None = None) -> None:
        self._work = work
        self._place = open_place(work.location)
        if encoder is not None:
            self._encoder = encoder

    @cached_property
    def _encoder(self) -> OnnxEncoder:
        """The encoder.

        Raises:
            InputError: Where this machine has another one, or other packages.
        """
        work = self._work
        if _versions() != work.versions:
            named = ", ".join(f"{name} {here}" for name, here in zip(_PACKAGES, _versions(), strict=True))
            raise InputError(
                f"a worker has {named}, and the command {', '.join(work.versions)}; install the same everywhere"
            )
        if work.folder is not None:
            return self._checked(Path(work.folder))
        with tempfile.TemporaryDirectory(prefix="taugate-encoder-") as folder:
            for name in FILES:
                with (Path(folder) / name).open("wb") as file:
                    self._place.download(work._encoder_name(name), file, _MODEL_BYTES)
            return self._checked(Path(folder))

    def _checked(self, folder: Path) -> OnnxEncoder:
        encoder = OnnxEncoder.load(folder, threads=1)
        if encoder.sha256 != self._work.encoder:
            raise InputError(f"{folder}: the encoder has changed while it was encoding; run taugate encode again")
        return encoder

    def encode(self, shard: CorpusShard, progress: Callable[[int], object] | None = None) -> tuple[ShardRecord, bool]:
        """Return the record of a shard, and whether it had to be encoded: it may be there already.

        Args:
            shard: To be encoded.
            progress: Called with the number of texts that were just encoded.

        Raises:
            TaugateError: .
            OSError: .
        """
        found = finished_shard(self._place, shard, self._work.dimension)
        if found is not None:
            return found, False
        documents = self._work.documents(self._place, shard)
        return write_shard(self._place, shard, self._encoder, documents, progress), True


def _documents_name(shard: CorpusShard) -> str:
    return f"{_WAITING}/{shard.key}.jsonl"


def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in _PACKAGES)
