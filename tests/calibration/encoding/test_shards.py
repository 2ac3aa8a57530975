"""The encoded corpus on disk: written shard by shard, read by position, and refused where it is not what it says."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors.numpy import load

from taugate.calibration.encoding.cache import ReusableRows
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import (
    RECORD,
    CorpusShard,
    EncodingRecord,
    corpus_shards,
    encode_shard,
    finished_shard,
    list_digest,
    shard_name,
    write_record,
    write_shard,
)
from taugate.errors import InputError
from taugate.release.layout import TEXTS
from taugate.retrieval.documents.store import Document, DocumentWriter
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.object_store import Folder
from tests.fake_encoder import write_fake_encoder

ROWS, COUNT = 16, 41  # two whole shards and one of nine


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    words = ["tile", "brick", "roof", "beam", "grout", "window", "cellar", "gravel"]
    drawn = np.random.default_rng(3)
    texts = [" ".join(drawn.choice(words, size=1 + number)) for number in range(COUNT)]
    # a line separator inside of a text ends no line of JSON
    return [Document(str(number), f"{text}\u2028\x85é") for number, text in enumerate(texts)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, documents: list[Document]) -> ExportedEncoder:
    folder = write_fake_encoder(tmp_path_factory.mktemp("encoder"), [each.text for each in documents])
    return ExportedEncoder.load(folder, threads=1)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory, documents: list[Document]) -> Path:
    return _spooled(tmp_path_factory.mktemp("spool"), documents)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spool: Path, encoder: ExportedEncoder) -> Path:
    folder = tmp_path_factory.mktemp("encoded")
    _write(folder, spool, encoder)
    return folder


@pytest.fixture
def copy(tmp_path: Path, written: Path) -> Path:
    """An encoding that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "copy"))


def _spooled(folder: Path, documents: list[Document]) -> Path:
    writer = DocumentWriter(folder)
    for document in documents:
        writer.append(document)
    writer.close()
    return folder


def _write(folder: Path, spool: Path, encoder: ExportedEncoder) -> EncodingRecord:
    place, texts = Folder(folder), (spool / TEXTS).read_bytes()
    shards = [
        write_shard(place, shard, encoder, texts[shard.start : shard.start + shard.size])
        for shard in corpus_shards(spool, encoder.sha256, ROWS)
    ]
    return write_record(place, encoder, shards, ROWS)


def test_vectors_by_position_match_encoder(
    written: Path, encoder: ExportedEncoder, documents: list[Document], tmp_path: Path
) -> None:
    vectors = ShardedVectors.open(str(written), encoder.sha256, tmp_path)
    expected = encoder.encode([each.encoded_text for each in documents], "document")
    assert vectors.shape == (COUNT, encoder.config.dimension)
    for positions in ([40], [0, 40, 16, 15, 0], [[3, 2], [39, 3]], list(range(COUNT)), []):
        wanted = np.array(positions, dtype=np.int64)
        assert vectors[wanted].tobytes() == expected[wanted].tobytes()
        assert vectors[wanted].shape == (*wanted.shape, encoder.config.dimension)
    with pytest.raises(IndexError):
        vectors[np.array([COUNT])]
    with pytest.raises(IndexError):
        vectors[np.array([-1])]


def test_blocks_are_shards_in_order(
    written: Path, encoder: ExportedEncoder, documents: list[Document], tmp_path: Path
) -> None:
    vectors = ShardedVectors.open(str(written), encoder.sha256, tmp_path)
    blocks = list(vectors.blocks())
    assert [(first, len(block)) for first, block in blocks] == [(0, 16), (16, 16), (32, 9)]
    expected = encoder.encode([each.encoded_text for each in documents], "document")
    assert np.concatenate([block for _, block in blocks]).tobytes() == expected.tobytes()
    lengths = np.concatenate([block for _, block in vectors.lengths.blocks()])
    assert lengths.tolist() == [len(each.text.encode()) for each in documents]
    assert vectors.lengths[np.array([40, 0])].tolist() == [lengths[40], lengths[0]]
    assert vectors.truncated == sum(len(each.text.split()) > 64 for each in documents)


def test_single_row_reads_few_bytes(
    written: Path, encoder: ExportedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row reads one row, not a shard: a search for k documents would read k shards."""
    import os

    vectors = ShardedVectors.open(str(written), encoder.sha256, tmp_path)
    sizes: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *given: (sizes.append(given[1]), pread(*given))[1])
    vectors[np.array([20])]
    assert max(sizes) < 4096 + 1


def test_record_ignores_encoding_order(written: Path, spool: Path, encoder: ExportedEncoder, tmp_path: Path) -> None:
    place, texts = Folder(tmp_path), (spool / TEXTS).read_bytes()
    shards = list(corpus_shards(spool, encoder.sha256, ROWS))
    made = {
        shard.key: write_shard(place, shard, encoder, texts[shard.start : shard.start + shard.size])
        for shard in reversed(shards)
    }
    write_record(place, encoder, [made[shard.key] for shard in shards], ROWS)
    assert (tmp_path / RECORD).read_bytes() == (written / RECORD).read_bytes()


def test_finished_shard_requires_complete_file(copy: Path, spool: Path, encoder: ExportedEncoder) -> None:
    place, shards = Folder(copy), list(corpus_shards(spool, encoder.sha256, ROWS))
    recorded = EncodingRecord.model_validate_json((copy / RECORD).read_bytes()).shards
    dimension = encoder.config.dimension
    assert [finished_shard(place, shard, dimension) for shard in shards] == list(recorded)
    assert finished_shard(place, shards[0], dimension + 1) is None
    path = copy / shards[1].name
    path.write_bytes(path.read_bytes()[:-1])
    assert finished_shard(place, shards[1], dimension) is None
    path.write_bytes(b"x" * 10)
    assert finished_shard(place, shards[1], dimension) is None
    path.unlink()
    assert finished_shard(place, shards[1], dimension) is None


def test_shard_keys_depend_on_contents(spool: Path, documents: list[Document], tmp_path: Path) -> None:
    def keys(folder: Path, encoder: str) -> list[str]:
        return [each.key for each in corpus_shards(folder, encoder, ROWS)]

    first = keys(spool, "a" * 64)
    assert not set(first) & set(keys(spool, "b" * 64))
    changed = [*documents[:20], Document("20", "another"), *documents[21:]]
    assert [a == b for a, b in zip(first, keys(_spooled(tmp_path, changed), "a" * 64), strict=True)] == [
        True,
        False,
        True,
    ]


def _edit_record(folder: Path, change: Callable[[dict], None], *, digest: bool = True) -> None:
    path = folder / RECORD
    record = orjson.loads(path.read_bytes())
    change(record)
    if digest:
        edited = EncodingRecord.model_validate_json(orjson.dumps(record))
        record["digest"] = list_digest(edited.shards)
    path.write_bytes(orjson.dumps(record))


def _flip(folder: Path, shard: CorpusShard) -> None:
    path = folder / shard.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def test_invalid_encoding_names_cause(copy: Path, spool: Path, encoder: ExportedEncoder, tmp_path: Path) -> None:
    def refused(message: str, sha256: str = encoder.sha256) -> None:
        with pytest.raises(InputError, match=message):
            ShardedVectors.open(str(copy), sha256, tmp_path)

    sound = (copy / RECORD).read_bytes()
    shards = list(corpus_shards(spool, encoder.sha256, ROWS))
    refused("of another encoder", "0" * 64)
    _edit_record(copy, lambda record: record.update(version=2))
    refused("has version 2")
    (copy / RECORD).write_bytes(sound)
    _edit_record(copy, lambda record: record["shards"].reverse(), digest=False)
    refused("digest does not match its shards")
    (copy / RECORD).write_bytes(b"{}")
    refused("not the record of an encoding")
    (copy / RECORD).unlink()
    refused("no finished encoding")
    (copy / RECORD).write_bytes(sound)
    _edit_record(copy, lambda record: record.update(dimension=256))
    refused("the shape of vectors differs")
    (copy / RECORD).write_bytes(sound)
    _flip(copy, shards[2])
    refused("is damaged")
    (copy / shards[2].name).unlink()
    refused("is missing")


def test_different_corpus_names_first_difference(
    written: Path, spool: Path, documents: list[Document], encoder: ExportedEncoder, tmp_path: Path
) -> None:
    vectors = ShardedVectors.open(str(written), encoder.sha256, tmp_path)
    vectors.check_corpus(str(written), spool)
    for name, other, message in (
        ("changed", [*documents[:20], Document("20", "x"), *documents[21:]], "documents differ from number 17 on"),
        ("shorter", documents[:32], "the corpus has other documents"),
        ("longer", [*documents, *(Document(f"new {each}", "x") for each in range(7 + ROWS))], "from number 33 on"),
    ):
        (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=message):
            vectors.check_corpus(str(written), _spooled(tmp_path / name, other))


def test_shards_from_url_are_copied(
    written: Path, encoder: ExportedEncoder, documents: list[Document], tmp_path: Path
) -> None:
    vectors = ShardedVectors.open(f"file://{written}", encoder.sha256, tmp_path)
    copied = {each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.safetensors")}
    assert copied == {shard_name(each.key) for each in vectors.record.shards}
    expected = encoder.encode([documents[40].encoded_text], "document")
    assert vectors[np.array([40])].tobytes() == expected.tobytes()


@pytest.mark.parametrize("places", [[0, 3, 15], [*range(ROWS)]], ids=["some", "all"])
def test_reused_vectors_give_same_shard(places: list[int], spool: Path, encoder: ExportedEncoder) -> None:
    shard = next(corpus_shards(spool, encoder.sha256, ROWS))
    documents = (spool / TEXTS).read_bytes()[: shard.size]
    whole = encode_shard(encoder, documents)
    known = ReusableRows(np.array(places), load(whole)["vectors"][places])
    encoded: list[int] = []
    assert encode_shard(encoder, documents, encoded.append, known) == whole
    assert sum(encoded) == ROWS - len(places)
