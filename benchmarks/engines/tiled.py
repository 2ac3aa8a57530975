"""A corpus of as many documents as one likes: those of squad_v2_dev again and again, with their vectors jittered."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from benchmarks.encoding import encoded_set, loaded_encoder
from taugate.calibration.encoding.shards import RECORD, CorpusShard, corpus_shards, shard_record, write_record
from taugate.policy.arrays import Float32
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter, write_document
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.object_store import open_place

DATA = "squad_v2_dev"
QUERIES = 1000
_JITTER = 0.02  # of each component, in the copies of a document


@dataclass(frozen=True)
class TiledCorpus:
    """Files of a corpus that repeats a smaller one.

    Attributes:
        data: The data set, with the first queries of the original.
        spool: Its documents, as DocumentWriter wrote them.
        encoded: Its vectors, as `taugate encode` writes them.
    """

    folder: Path

    @property
    def data(self) -> Path:
        """The data set."""
        return self.folder / "data"

    @property
    def spool(self) -> Path:
        """The documents."""
        return self.folder / "spool"

    @property
    def encoded(self) -> Path:
        """The vectors."""
        return self.folder / "encoded"

    def queries(self) -> list[str]:
        """Return the texts of the queries."""
        lines = (self.data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines]


def tiled(source: Path, folder: Path, count: int, characters: int = 0) -> TiledCorpus:
    """Return a corpus of `count` documents, written unless it is there already."""
    corpus = TiledCorpus(folder)
    if (corpus.encoded / RECORD).is_file():  # which is written last
        return corpus
    shutil.rmtree(folder, ignore_errors=True)
    (corpus.data / "qrels").mkdir(parents=True)
    corpus.spool.mkdir()
    encoder = loaded_encoder()
    vectors = _spooled(source, corpus, encoder, count, characters)
    rng, place, records = np.random.default_rng(0), open_place(str(corpus.encoded)), []
    documents = DocumentStore(corpus.spool)
    for first, shard in _numbered(corpus_shards(corpus.spool, encoder.sha256)):
        positions = np.arange(first, first + shard.rows)
        jitter = np.where(positions < len(vectors), 0, _JITTER)[:, None]
        near = vectors[positions % len(vectors)] + jitter * rng.standard_normal((shard.rows, vectors.shape[1]))
        unit = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)
        lengths = np.array([len(documents[at].encoded_text.encode()) for at in positions.tolist()], dtype=np.int64)
        truncated = np.zeros(shard.rows, dtype=np.bool_)
        content = save({"vectors": unit, "lengths": lengths, "truncated": truncated})
        place.write(shard.name, content)
        records.append(shard_record(shard, content, truncated))
    write_record(place, encoder, records)
    return corpus


def _numbered(shards: Iterable[CorpusShard]) -> Iterator[tuple[int, CorpusShard]]:
    """Yield shards with the position of their first document."""
    first = 0
    for shard in shards:
        yield first, shard
        first += shard.rows


def _spooled(source: Path, corpus: TiledCorpus, encoder: ExportedEncoder, count: int, characters: int) -> Float32:
    """Write the corpus, the first queries and their labels; returns the vectors of the documents before tiling."""
    with tempfile.TemporaryDirectory() as original:
        dataset, encoded = encoded_set(source / DATA, "test", Path(original))
        writer, sources = DocumentWriter(corpus.spool), len(dataset.documents)
        with (corpus.data / "corpus.jsonl").open("wb") as lines:
            for number in range(count):
                document = dataset.documents[number % sources]
                name = document.id if number < sources else f"{document.id}#{number}"
                copy = Document(name, document.text[: characters or None], document.title, document.metadata)
                writer.append(copy)
                lines.write(write_document(copy) + b"\n")
        writer.close()
        queries = dataset.answerable[:QUERIES]
        asked = "".join(json.dumps({"_id": query.id, "text": query.text}) + "\n" for query in queries)
        labels = "".join(
            f"{query.id}\t{dataset.documents[position].id}\t{grade}\n"
            for query in queries
            for position, grade in query.relevant.items()
            if position < count
        )
        (corpus.data / "queries.jsonl").write_text(asked, encoding="utf-8")
        (corpus.data / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}", encoding="utf-8")
        vectors: Float32 = np.asarray(encoded.documents)
        return vectors
