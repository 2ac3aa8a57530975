"""What is kept of a corpus beside its vectors."""

import json
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.progress import Job
from taugate.data.beir import read_dataset
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.fake_encoder import write_fake_encoder


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
