"""The encoded corpus as files: shards of vectors in the order of the corpus, and a record that lists them.

`shards/<key>.safetensors` has the vectors of 8,192 documents. The key is a digest of the encoder and of these
documents, so a restarted job recognises finished shards, and workers need no coordination. `encoding.json` is written
last; without it, the encoding is unfinished.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from taugate.calibration.encoding.cache import ReusableRows
from taugate.calibration.encoding.corpus import naming_refused
from taugate.errors import InputError
from taugate.policy.arrays import Float32
from taugate.release.layout import TEXTS
from taugate.retrieval.documents.store import read_document
from taugate.retrieval.encoder.encoder import ExportedEncoder, Tokens
from taugate.storage.files import sha256_json
from taugate.storage.object_store import Place

VERSION = 1  # of the layout; part of every key
SHARD_ROWS = 8192  # documents per shard: 12 MB of vectors at d = 384, about a minute of one processor
RECORD = "encoding.json"
_RECORD_BYTES = 256 << 20  # limit: 160 bytes per shard, enough for 10¹⁰ documents
HEADER_BYTES = 4096  # limit for the header of a shard's file; three arrays take 250
_SHA256 = Field(pattern="^[0-9a-f]{64}$")


class ShardRecord(BaseModel):
    """One shard: its key, the SHA-256 of its file, its rows, and the number of its texts that were truncated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = _SHA256
    sha256: str = _SHA256
    rows: int = Field(ge=1)
    truncated: int = Field(ge=0)


class EncodingRecord(BaseModel):
    """Content of `encoding.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    encoder: str = _SHA256
    dimension: int = Field(ge=1)
    rows: int = Field(ge=1)
    shard_rows: int = Field(ge=1)
    shards: tuple[ShardRecord, ...]
    digest: str = _SHA256  # SHA-256 of that list, the same for any number of workers


@dataclass(frozen=True)
class CorpusShard:
    """The documents of a shard as a slice of the corpus file."""

    key: str
    start: int
    size: int
    rows: int

    @property
    def name(self) -> str:
        """Name of the file with the vectors."""
        return shard_name(self.key)


def shard_name(key: str) -> str:
    """Return the name of a shard's file."""
    return f"shards/{key}.safetensors"


def shard_bytes(rows: int, dimension: int) -> int:
    """Return the maximum size in bytes of a shard's file."""
    return rows * (4 * dimension + 9) + HEADER_BYTES


def corpus_shards(spool: Path, encoder_sha256: str, shard_rows: int = SHARD_ROWS) -> Iterator[CorpusShard]:
    """Yield the shards of a corpus in order."""
    start = 0
    with (spool / TEXTS).open("rb") as file:
        while lines := list(islice(file, shard_rows)):
            digest = hashlib.sha256(f"{VERSION} {encoder_sha256}\n".encode())
            for line in lines:
                digest.update(line)
            size = sum(map(len, lines))
            yield CorpusShard(digest.hexdigest(), start, size, len(lines))
            start += size


def encode_shard(
    encoder: ExportedEncoder,
    documents: bytes,
    progress: Callable[[int], object] | None = None,
    reusable: ReusableRows | None = None,
) -> bytes:
    """Return the content of a shard's file, the same bytes for the same documents in every worker.

    It holds `vectors`, (m, d) float32 of unit length, `lengths`, (m,) int64 bytes of each text, and `truncated`, (m,)
    bool, whether the text is longer than the encoder reads.

    Args:
        reusable: Rows that need not be encoded.
    """
    names = {document.id: document.encoded_text for document in map(read_document, documents.splitlines())}
    texts = [*names.values()]
    tokens = encoder.tokenize(texts, "document")
    with naming_refused(encoder.config, "document", names.items()):
        vectors = (
            encoder.embed(tokens, progress) if reusable is None else _completed(reusable, encoder, tokens, progress)
        )
    arrays: dict[str, NDArray[np.generic]] = {
        "vectors": vectors,
        "lengths": np.array([len(text.encode()) for text in texts], dtype=np.int64),
        "truncated": np.array([shard.truncated for shard in tokens], dtype=np.bool_),
    }
    return save(arrays)


def _completed(
    reusable: ReusableRows, encoder: ExportedEncoder, tokens: list[Tokens], progress: Callable[[int], object] | None
) -> Float32:
    """Return the vectors of a shard, encoding only those that cannot be reused."""
    vectors = np.empty((len(tokens), encoder.config.dimension), dtype=np.float32)
    vectors[reusable.places] = reusable.vectors
    new = np.setdiff1d(np.arange(len(tokens)), reusable.places)
    vectors[new] = encoder.embed([tokens[place] for place in new.tolist()], progress)
    return vectors


def finished_shard(place: Place, shard: CorpusShard, dimension: int) -> ShardRecord | None:
    """Return the record of a shard that is already complete; None if it has to be encoded."""
    max_bytes = shard_bytes(shard.rows, dimension)
    size = place.size(shard.name)
    if size is None or size > max_bytes:
        return None
    try:
        content = place.read(shard.name, max_bytes)
        arrays = load(content)
        vectors, truncated = arrays["vectors"], arrays["truncated"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return None
    shapes = vectors.shape == (shard.rows, dimension) and truncated.shape == (shard.rows,)
    return shard_record(shard, content, truncated) if shapes and bool(np.isfinite(vectors).all()) else None


def shard_record(shard: CorpusShard, content: bytes, truncated: NDArray[np.generic]) -> ShardRecord:
    """Return the record of a shard; `truncated`: (m,) bool, whether each text was truncated."""
    return ShardRecord(
        key=shard.key,
        sha256=hashlib.sha256(content).hexdigest(),
        rows=shard.rows,
        truncated=int(np.count_nonzero(truncated)),
    )


def write_shard(
    place: Place,
    shard: CorpusShard,
    encoder: ExportedEncoder,
    documents: bytes,
    progress: Callable[[int], object] | None = None,
    reusable: ReusableRows | None = None,
) -> ShardRecord:
    """Encode a shard and write it in one step; `documents`, `progress` and `reusable` are those of `encode_shard`.

    Raises:
        EncoderError: If the encoder fails.
        StoreError: If object storage fails.
        OSError: If the file cannot be written.
    """
    content = encode_shard(encoder, documents, progress, reusable)
    place.write(shard.name, content)
    return shard_record(shard, content, load(content)["truncated"])


def write_record(
    place: Place, encoder: ExportedEncoder, shards: Iterable[ShardRecord], shard_rows: int = SHARD_ROWS
) -> EncodingRecord:
    """Finish an encoding by writing the record of its shards."""
    listed = tuple(shards)
    record = EncodingRecord(
        version=VERSION,
        encoder=encoder.sha256,
        dimension=encoder.config.dimension,
        rows=sum(shard.rows for shard in listed),
        shard_rows=shard_rows,
        shards=listed,
        digest=list_digest(listed),
    )
    place.write(RECORD, record.model_dump_json().encode() + b"\n")
    return record


def list_digest(shards: Iterable[ShardRecord]) -> str:
    """Return the SHA-256 of a list of shards."""
    return sha256_json([shard.model_dump() for shard in shards])


def read_record(place: Place) -> EncodingRecord | None:
    """Read the record of an encoding; None if there is none.

    Raises:
        InputError: If the file is not a valid record.
    """
    location = f"{place.url}/{RECORD}"
    try:
        record = EncodingRecord.model_validate_json(place.read(RECORD, _RECORD_BYTES))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise InputError(
            f"{location}: not the record of an encoding; give the location that taugate encode wrote"
        ) from error
    if record.version != VERSION:
        raise InputError(
            f"{location}: has version {record.version}, but this Taugate reads version {VERSION}; encode again"
        )
    rows = [shard.rows for shard in record.shards]
    sizes_match = rows and all(count == record.shard_rows for count in rows[:-1]) and rows[-1] <= record.shard_rows
    if not sizes_match or sum(rows) != record.rows or list_digest(record.shards) != record.digest:
        raise InputError(f"{location}: its digest does not match its shards; encode again")
    return record
