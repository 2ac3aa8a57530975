"""Texts that an endpoint refuses are named, and those that it finds too long are counted as truncated."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.shards import encode_shard
from taugate.calibration.progress import Job
from taugate.data.beir import read_dataset
from taugate.errors import TextRefused
from taugate.retrieval.encoder.encoder import EndpointAccess, ExportedEncoder
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.retrieval.encoder.test_endpoint import endpoint_encoder

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
