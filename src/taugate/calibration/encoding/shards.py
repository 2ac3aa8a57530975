"""The encoded corpus as files: shards of vectors in the order of the corpus, and a record that lists them.

`shards/<key>.safetensors` has the vectors of 8,192 documents. Its key is a digest of the encoder and of these
documents, so whoever starts again sees what is done, and workers need not agree on anything. `encoding.json` comes
last: without it, the encoding is not finished.
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

from taugate.calibration.encoding.changes import KnownRows
from taugate.errors import InputError
from taugate.retrieval.documents.store import TEXTS, read_document
from taugate.retrieval.encoder.encoder import OnnxEncoder, Tokens
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import sha256_json
from taugate.storage.places import Place

VERSION = 1  # of the layout; in every key
SHARD_ROWS = 8192  # documents: 12 MB of vectors at d = 384, and a minute of a processor
RECORD = "encoding.json"
_RECORD_BYTES = 256 << 20  # 160 bytes a shard: the record of 10¹⁰ documents
HEADER_BYTES = 4096  # of a shard's file: three arrays are described in 250
_SHA256 = Field(pattern="^[0-9a-f]{64}$")


class ShardRecord(BaseModel):
    """One shard: its key, the SHA-256 of its file, its rows, and how many of its texts the encoder cut off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = _SHA256
    sha256: str = _SHA256
    rows: int = Field(ge=1)
    truncated: int = Field(ge=0)


class EncodingRecord(BaseModel):
    """What `encoding.json` says.

    Attributes:
        version: Of the layout.
        encoder: SHA-256 of the encoder's files.
        dimension: d of its vectors.
        rows: N.
        shard_rows: Of every shard but the last.
        shards: In the order of the corpus.
        digest: Of that list, the same however many workers encoded it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    encoder: str = _SHA256
    dimension: int = Field(ge=1)
    rows: int = Field(ge=1)
    shard_rows: int = Field(ge=1)
    shards: tuple[ShardRecord, ...]
    digest: str = _SHA256


@dataclass(frozen=True)
class CorpusShard:
    """Where the documents of a shard are in the file that has all of them.

    Attributes:
        key: Of the shard.
        start: In bytes.
        size: In bytes.
        rows: Documents.
    """

    key: str
    start: int
    size: int
    rows: int

    @property
    def name(self) -> str:
        """The file of its vectors."""
        return shard_name(self.key)


def shard_name(key: str) -> str:
    """Return the name of a shard's file."""
    return f"shards/{key}.safetensors"


def shard_bytes(rows: int, dimension: int) -> int:
    """Return the most bytes that the file of a shard of so many vectors of a dimension has."""
    return rows * (4 * dimension + 9) + HEADER_BYTES


def corpus_shards(spool: Path, encoder_sha256: str, shard_rows: int = SHARD_ROWS) -> Iterator[CorpusShard]:
    """Yield the shards of a corpus in order.

    Args:
        spool: Folder with the corpus, as DocumentWriter wrote it.
        encoder_sha256: Of the encoder's files.
        shard_rows: Documents a shard.
    """
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
    encoder: OnnxEncoder,
    documents: bytes,
    progress: Callable[[int], object] | None = None,
    known: KnownRows | None = None,
) -> bytes:
    """Return the file of a shard: the same bytes for the same documents, whoever encodes them.

    It holds `vectors`, (m, d) float32 of unit length, `lengths`, (m,) int64 bytes of each text, and `truncated`, (m,)
    bool: texts longer than the encoder reads.

    Args:
        documents: Their JSON lines.
        progress: Called with the number of texts that were just encoded.
        known: Rows that are not encoded.

    Raises:
        EncoderError: .
    """
    texts = [read_document(line).encoded_text for line in documents.splitlines()]
    tokens = encoder.tokenize(texts, "document")
    arrays: dict[str, NDArray[np.generic]] = {
        "vectors": encoder.embed(tokens, progress) if known is None else _completed(known, encoder, tokens, progress),
        "lengths": np.array([len(text.encode()) for text in texts], dtype=np.int64),
        "truncated": np.array([each.truncated for each in tokens], dtype=np.bool_),
    }
    return save(arrays)


def _completed(
    known: KnownRows, encoder: OnnxEncoder, tokens: list[Tokens], progress: Callable[[int], object] | None
) -> Float32:
    """Return the vectors of a shard, of which some are known; the parameters are those of `encode_shard`."""
    vectors = np.empty((len(tokens), encoder.config.dimension), dtype=np.float32)
    vectors[known.places] = known.vectors
    new = np.setdiff1d(np.arange(len(tokens)), known.places)
    vectors[new] = encoder.embed([tokens[place] for place in new.tolist()], progress)
    return vectors


def finished_shard(place: Place, shard: CorpusShard, dimension: int) -> ShardRecord | None:
    """Return the record of a shard that is there already and whole; None where it has to be encoded.

    Args:
        place: Of the encoding.
        shard: That is looked for.
        dimension: Of its vectors.
    """
    most = shard_bytes(shard.rows, dimension)
    size = place.size(shard.name)
    if size is None or size > most:
        return None
    try:
        content = place.read(shard.name, most)
        arrays = load(content)
        vectors, truncated = arrays["vectors"], arrays["truncated"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return None
    shapes = vectors.shape == (shard.rows, dimension) and truncated.shape == (shard.rows,)
    return shard_record(shard, content, truncated) if shapes and bool(np.isfinite(vectors).all()) else None


def shard_record(shard: CorpusShard, content: bytes, truncated: NDArray[np.generic]) -> ShardRecord:
    """Return the record of a shard.

    Args:
        content: Of its file.
        truncated: (m,) bool, which of its texts were cut off.
    """
    return ShardRecord(
        key=shard.key,
        sha256=hashlib.sha256(content).hexdigest(),
        rows=shard.rows,
        truncated=int(np.count_nonzero(truncated)),
    )


def write_shard(
    place: Place,
    shard: CorpusShard,
    encoder: OnnxEncoder,
    documents: bytes,
    progress: Callable[[int], object] | None = None,
    known: KnownRows | None = None,
) -> ShardRecord:
    """Encode a shard and write it to its place in one step.

    Args:
        place: Of the encoding.
        shard: That is encoded.
        encoder: That encodes.
        documents: Of the shard, as JSON lines.
        progress: As of `encode_shard`.
        known: As of `encode_shard`.

    Raises:
        EncoderError: , and what the place raises.
    """
    content = encode_shard(encoder, documents, progress, known)
    place.write(shard.name, content)
    return shard_record(shard, content, load(content)["truncated"])


def write_record(
    place: Place, encoder: OnnxEncoder, shards: Iterable[ShardRecord], shard_rows: int = SHARD_ROWS
) -> EncodingRecord:
    """Finish an encoding: write the record of all its shards.

    Args:
        place: Of the encoding.
        encoder: That encoded.
        shards: In the order of the corpus.
        shard_rows: Of all but the last.
    """
    listed = tuple(shards)
    record = EncodingRecord(
        version=VERSION,
        encoder=encoder.sha256,
        dimension=encoder.config.dimension,
        rows=sum(each.rows for each in listed),
        shard_rows=shard_rows,
        shards=listed,
        digest=list_digest(listed),
    )
    place.write(RECORD, record.model_dump_json().encode() + b"\n")
    return record


def list_digest(shards: Iterable[ShardRecord]) -> str:
    """Return the SHA-256 of a list of shards."""
    return sha256_json([each.model_dump() for each in shards])


def read_record(place: Place) -> EncodingRecord | None:
    """Read the record of an encoding; None where there is none.

    Raises:
        InputError: Where it is no record of ours.
    """
    where = f"{place.url}/{RECORD}"
    try:
        record = EncodingRecord.model_validate_json(place.read(RECORD, _RECORD_BYTES))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise InputError(f"{where}: not the record of an encoding; give the place that taugate encode wrote") from error
    if record.version != VERSION:
        raise InputError(f"{where}: is of version {record.version}, and this Taugate reads {VERSION}; encode again")
    rows = [each.rows for each in record.shards]
    whole = rows and all(each == record.shard_rows for each in rows[:-1]) and rows[-1] <= record.shard_rows
    if not whole or sum(rows) != record.rows or list_digest(record.shards) != record.digest:
        raise InputError(f"{where}: its digest is not that of its shards; encode again")
    return record
