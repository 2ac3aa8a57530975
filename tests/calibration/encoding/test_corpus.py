"""Texts of a corpus: what changed, what is encoded, and what an encoder refuses."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, CorpusDigests, EmbeddingCache, ReusableVectors
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.shards import encode_shard
from taugate.calibration.progress import Job
from taugate.data.beir import read_dataset
from taugate.errors import TextRefused
from taugate.retrieval.documents.store import Document
from taugate.retrieval.encoder.encoder import EndpointAccess, ExportedEncoder
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.fake_encoder import write_fake_encoder
from tests.retrieval.encoder.test_endpoint import endpoint_encoder


def drawn(seed: int) -> list[Document]:
    """Some passages with few texts and ids, so that two corpora share many; chunks among them."""
    rng = np.random.default_rng(seed)
    passages = []
    for number in rng.permutation(40)[: rng.integers(1, 40)].tolist():
        metadata = {"year": int(rng.integers(2))}
        parent = f"p{number // 4}" if number % 3 == 0 else None
        passages.append(Document(f"d{number}", f"text {rng.integers(12)}", None, metadata, parent))
    return passages


@pytest.mark.parametrize("seed", range(60))
def test_changes_match_pairwise_comparison(seed: int) -> None:
    old, new = drawn(seed), drawn(seed // 2 + 1000) if seed % 3 else drawn(seed)
    found = CorpusChanges.between(CorpusDigests.of(old), CorpusDigests.of(new))
    before, after = {each.id: each for each in old}, {each.id: each for each in new}
    stay = [each.id for each in old if each.id in after]
    assert found.added == len({*after} - {*before})
    assert found.removed == len({*before} - {*after})
    assert found.changed == sum(before[name] != after[name] for name in stay)
    assert found.reordered == (stay != [each.id for each in new if each.id in before])
    assert found.is_empty == (old == new)
    texts, later = [each.text for each in old], [each.text for each in new]
    assert found.sources.tolist() == [texts.index(each) if each in texts else UNKNOWN for each in later]
    surplus = Counter(later)
    surplus.subtract(Counter(texts))
    assert found.extra_copies == {later.index(text): count for text, count in surplus.items() if count > 0}
    assert found.missing_copies == {texts.index(text): -count for text, count in surplus.items() if count < 0}


@pytest.mark.parametrize("seed", range(20))
def test_positions_by_passage_and_document_id(seed: int) -> None:
    passages = drawn(seed)
    digests = CorpusDigests.of(iter(passages))
    asked = [f"d{number}" for number in range(41)] + [f"p{number}" for number in range(11)]
    expected = {
        name: [place for place, each in enumerate(passages) if name in {each.id, each.parent}] for name in asked
    }
    assert digests.positions(asked) == {name: places for name, places in expected.items() if places}
    assert {name for name in asked if name in digests} == {name for name, places in expected.items() if places}
    assert digests.positions([]) == {}
    assert len(digests) == len(passages)


def test_reusable_vectors_come_from_sources() -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    known = ReusableVectors(np.array([UNKNOWN, 4, 4, UNKNOWN, UNKNOWN, 0]), vectors)
    assert len(known) == 3
    rows = known.rows(1, 3)
    assert rows is not None
    assert rows.places.tolist() == [0, 1]
    assert rows.vectors.tobytes() == vectors[[4, 4]].tobytes()
    assert known.rows(3, 2) is None


def test_document_length_excludes_metadata(tmp_path: Path) -> None:
    """Metadata and escapes must not move what a model makes of the length: first, and again from the cache."""
    corpus = [
        {"_id": "a", "text": "plain words"},
        {"_id": "b", "text": "plain words", "metadata": {"url": "x" * 400}},
        {"_id": "c", "title": "Über", "text": 'said "yes"\n'},
    ]
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    lines = {"corpus": corpus, "queries": [{"_id": "q", "text": "words"}]}
    for name, rows in lines.items():
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")  # type: ignore[attr-defined]  # JSON or YAML
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n", encoding="utf-8")
    encoder = ExportedEncoder.load(write_fake_encoder(tmp_path / "encoder", ["plain words"]))
    cache = EmbeddingCache.of(encoder)
    for run in ("first", "again"):
        (tmp_path / run).mkdir()
        dataset = read_dataset(data, "test", tmp_path / run)
        encoded = encode_dataset(dataset, encoder, cache, Job())
        assert encoded.lengths.tolist() == [11, 11, len('Über said "yes"\n'.encode())]


DENSE = "7 " * 60


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as served:
        served.max_digits = 50
        yield served


@pytest.fixture
def encoder(server: EmbeddingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExportedEncoder:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    return endpoint_encoder(tmp_path / "encoder", server, EndpointAccess(), document_prompt="passage: ")


def encoded(encoder: ExportedEncoder, folder: Path, document: str, query: str) -> tuple[int, list[str]]:
    """Encode a small data set; returns the number of truncated documents, and what is reported."""
    (folder / "data" / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": "d1", "text": "plain"}, {"_id": "d2", "text": document}]
    for name, rows in {"corpus": corpus, "queries": [{"_id": "q1", "text": query}]}.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "data" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "data" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
    (folder / "spool").mkdir(exist_ok=True)
    reported: list[str] = []
    cache = EmbeddingCache.of(encoder)
    return encode_dataset(
        read_dataset(folder / "data", "test", folder / "spool"), encoder, cache, Job(report=reported.append)
    ).truncated_documents, reported


def test_too_dense_texts_count_as_truncated(encoder: ExportedEncoder, tmp_path: Path) -> None:
    for _ in range(2):  # encoded, and from the cache
        truncated, reported = encoded(encoder, tmp_path, DENSE, DENSE)
        assert truncated == 1
        assert "1 of 1 queries are longer than the endpoint reads" in "".join(reported)


@pytest.mark.parametrize(
    ("document", "query", "name"), [("poison", "fine", "document 'd2'"), ("fine", "poison", "query 'q1'")]
)
def test_refused_text_is_named(
    document: str, query: str, name: str, server: EmbeddingServer, encoder: ExportedEncoder, tmp_path: Path
) -> None:
    server.refused, server.refusal = "poison", 422
    with pytest.raises(TextRefused, match=f"^{re.escape(name)}: http.*input is too long"):
        encoded(encoder, tmp_path, document, query)


def test_shard_counts_truncated_and_names_refused(server: EmbeddingServer, encoder: ExportedEncoder) -> None:
    record = {"title": "", "metadata": {}, "parent": None, "span": None}
    lines = [json.dumps({"_id": f"d{place}", "text": text} | record) for place, text in enumerate(["plain", DENSE])]
    arrays = load(encode_shard(encoder, "\n".join(lines).encode()))
    assert arrays["truncated"].tolist() == [False, True]
    assert np.isfinite(arrays["vectors"]).all()
    server.refused = "plain"
    with pytest.raises(TextRefused, match="^document 'd0': http"):
        encode_shard(encoder, "\n".join(lines).encode())
