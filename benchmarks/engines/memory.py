"""How much memory a calibration over an engine takes at two sizes of the corpus."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from benchmarks.engines.plan import EnginePlan
from benchmarks.markdown import Target, table, targets
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.shards import CorpusShard, corpus_shards, shard_record, write_record
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.documents.store import DocumentStore, DocumentWriter, write_document
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.places import open_place
from tests.retrieval.engines.servers import engine_url

HEADING = "Memory of a calibration"
_DATA = "squad_v2_dev"
_QUERIES = 1000
_JITTER = 0.02  # of each component, in the copies of a document
_POLL = 0.1
_MOST_GROWTH = 0.1  # of the vectors that are added, which a calibration in the process holds at least once


@dataclass(frozen=True)
class _Run:
    """One calibration; anonymous, resident: peak bytes of what it allocated, and with the files that it has mapped."""

    documents: int
    anonymous: int
    resident: int
    seconds: float


def section(plan: EnginePlan) -> str:
    """Calibrate over PostgreSQL at both sizes, with vectors that were encoded before, and compare the peaks."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        small, large = (_calibrated(plan, Path(folder) / str(count), count) for count in plan.sizes)
    encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    added = 4 * encoder.config.dimension * (large.documents - small.documents)
    growth = large.anonymous - small.anonymous
    rows = [
        (f"{each.documents:,}", f"{each.anonymous / 1e6:,.0f}", f"{each.resident / 1e6:,.0f}", f"{each.seconds:.0f}")
        for each in (small, large)
    ]
    goals = [Target("growth, as a share of the vectors added", growth / added, at_most=_MOST_GROWTH)]
    return (
        f"{_DATA}, tiled and jittered, {_QUERIES:,} queries, pgvector, vectors given with `--embeddings`. *Allocated* is "
        "the peak of anonymous memory (RssAnon). *Resident* has the pages of mapped files too, the texts among them, "
        f"which the system takes back when it needs them. The vectors added are {added / 1e6:,.0f} MB.\n\n"
        f"{table(('documents', 'allocated, MB', 'resident, MB', 'seconds'), rows)}\n\n{targets(goals)}"
    )


def _calibrated(plan: EnginePlan, folder: Path, count: int) -> _Run:
    folder.mkdir()
    _write(plan, folder, count)
    with engine_url("pgvector") as (kind, url):
        command = [sys.executable, "-m", "taugate", "calibrate", str(folder / "data"), "--releases", str(folder / "r")]
        command += ["--engine", kind, "--embeddings", str(folder / "encoded"), "--no-promote", "--margin", "0.05"]
        began = time.perf_counter()
        with subprocess.Popen(
            command, env=os.environ | {"TAUGATE_ENGINE_URL": url}, stdout=subprocess.DEVNULL, stderr=sys.stderr
        ) as process:
            anonymous = resident = 0
            while process.poll() is None:
                used = _memory(process.pid)
                anonymous, resident = max(anonymous, used.get("RssAnon", 0)), max(resident, used.get("VmRSS", 0))
                time.sleep(_POLL)
        if process.returncode:
            raise RuntimeError(f"taugate calibrate ended with {process.returncode}")
        return _Run(count, anonymous, resident, time.perf_counter() - began)


def _memory(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return {}
    found = (line.split() for line in lines if line.startswith(("RssAnon", "VmRSS")))
    return {name.rstrip(":"): 1024 * int(kib) for name, kib, _ in found}


def _write(plan: EnginePlan, folder: Path, count: int) -> None:
    """Write a data set of `count` documents to `data`, and their vectors to `encoded`, as `taugate encode` does."""
    data, spool = folder / "data", folder / "spool"
    (data / "qrels").mkdir(parents=True)
    spool.mkdir()
    encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    vectors = _spooled(plan, data, spool, encoder, count)
    rng, place, records = np.random.default_rng(0), open_place(str(folder / "encoded")), []
    documents = DocumentStore(spool)
    for first, shard in _numbered(corpus_shards(spool, encoder.sha256)):
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


def _numbered(shards: Iterable[CorpusShard]) -> Iterator[tuple[int, CorpusShard]]:
    """Yield shards with the position of their first document."""
    first = 0
    for shard in shards:
        yield first, shard
        first += shard.rows


def _spooled(plan: EnginePlan, data: Path, spool: Path, encoder: OnnxEncoder, count: int) -> Float32:
    """Write the corpus, the first queries and their labels; returns the vectors of the documents before tiling."""
    with tempfile.TemporaryDirectory() as original:
        dataset = read_dataset(plan.data / _DATA, "test", Path(original))
        cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
        encoded = encode_dataset(dataset, encoder, cache, print, Stopwatch())
        writer, sources = DocumentWriter(spool), len(dataset.documents)
        with (data / "corpus.jsonl").open("wb") as corpus:
            for number in range(count):
                document = dataset.documents[number % sources]
                if number >= sources:
                    document = type(document)(f"{document.id}#{number}", document.text, document.title)
                writer.append(document)
                corpus.write(write_document(document) + b"\n")
        writer.close()
        queries = dataset.answerable[:_QUERIES]
        asked = "".join(json.dumps({"_id": query.id, "text": query.text}) + "\n" for query in queries)
        labels = "".join(
            f"{query.id}\t{dataset.documents[position].id}\t{grade}\n"
            for query in queries
            for position, grade in query.relevant.items()
        )
        (data / "queries.jsonl").write_text(asked, encoding="utf-8")
        (data / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}", encoding="utf-8")
        vectors: Float32 = np.asarray(encoded.documents)
        return vectors
