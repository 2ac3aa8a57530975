"""Compare a GPU with processors (`make gpu-check`): ranks of three indexes, scores of the encoder, replies per second.

It takes less than five minutes.

Needs an NVIDIA GPU with faiss-gpu and onnxruntime-gpu (docs/operations.md, "Run on a GPU"), TAUGATE_DATA with mixed_large,
and a releases directory whose release has a float32 encoder, such as that of `make quickstart`. Processors are measured in
processes that see no GPU. Exits with 1 if the results differ, with 2 without a GPU.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.checkout import environment
from benchmarks.markdown import table
from benchmarks.page import data_folder
from benchmarks.serving.cells import latency, measure, rate
from benchmarks.serving.load import LoadJob
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.policy.arrays import Float32
from taugate.registry.catalog import find
from taugate.release.names import Kind
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.folders import encoder_folders
from taugate.retrieval.hardware import gpu_count
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build, load_index, save

KINDS: tuple[Kind, ...] = ("flat", "flat-float16", "ivf-flat")
_DATASET, _QUESTIONS, _DOCUMENTS, _K, _LISTS = "mixed_large", 1000, 20_000, 10, 32
_TOLERANCE = 1e-3  # of a score by the encoder on a GPU
_CLIENTS, _WARM_UP, _SECONDS = (16, 64), 3.0, 10.0
_ON_PROCESSORS = {"CUDA_VISIBLE_DEVICES": ""}


class Found(NamedTuple):
    """What one device made of the questions.

    Attributes:
        vectors: (n, d) float32, the questions as this device encodes them.
        positions: (n, k) of each kind of index, the documents that it finds for the vectors of the GPU.
        copied: Kinds of index that were searched on the GPU.
    """

    vectors: Float32
    positions: dict[Kind, NDArray[np.int64]]
    copied: list[str]


def differences(gpu: Found, processors: Found, documents: Float32) -> dict[str, float]:
    """Return by kind the share of questions that are ranked differently, and the largest difference of a score.

    Args:
        gpu: What the GPU found.
        processors: What processors found.
        documents: (N, d) float32.
    """
    ranked = {
        f"questions ranked differently, {kind}": float((found != processors.positions[kind]).any(axis=1).mean())
        for kind, found in gpu.positions.items()
    }
    nearest = documents[gpu.positions["flat"]]
    by_gpu, by_processors = (np.einsum("nd,nkd->nk", found.vectors, nearest) for found in (gpu, processors))
    return ranked | {"largest difference of a score": float(np.abs(by_gpu - by_processors).max())}


def search(encoder: Path, work: Path, data: Path) -> Found:
    """Encode and search on the GPU if this process sees one; the first process also writes the indexes to `work`."""
    model = ExportedEncoder.load(encoder)
    texts = _texts(data / "queries.jsonl", _QUESTIONS)
    vectors = model.encode(texts, "query")
    if not (work / "questions.npy").is_file():
        documents = model.encode(_texts(data / "corpus.jsonl", _DOCUMENTS), "document")
        for kind in KINDS:
            (work / kind).mkdir()
            save(_with_lists(build(kind, documents)), work / kind)
        np.save(work / "questions.npy", vectors)
    questions = np.load(work / "questions.npy")
    indexes = {kind: load_index(work / kind, kind, questions.shape[1]) for kind in KINDS}
    positions = {kind: index.search(questions, _K).positions for kind, index in indexes.items()}
    return Found(vectors, positions, [kind for kind, index in indexes.items() if index.gpu.index])


def replies(releases: Path, data: Path, own_environment: dict[str, str]) -> list[list[str]]:
    """Measure the service with default settings and without a cache: replies/s and latencies by number of clients."""
    service = taugate(releases, "float32")
    service = replace(service, environment=service.environment | own_environment)
    texts = _texts(data / "queries.jsonl", None)
    requests, order = [service.request(text) for text in texts], [*range(len(texts))]
    rows = []
    with Server(service) as server:
        for clients in _CLIENTS:
            measure(server, requests, LoadJob(server.port, order[::-1], _WARM_UP, clients=clients))
            cell = measure(server, requests, LoadJob(server.port, order, _SECONDS, clients=clients))
            device = "processors" if own_environment else "GPU"
            rows.append([str(clients), device, f"{rate(cell):,.0f}", *(f"{latency(p)(cell):,.1f}" for p in (50, 99))])
    return rows


def main() -> None:
    """Compare the GPU with processors, and print the tables of a page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--releases", type=Path, default=Path("quickstart/releases"))
    parser.add_argument("--search", nargs=2, type=Path, metavar=("WORK", "TARGET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.search and not gpu_count():
        print("gpu-check: no GPU, or faiss-gpu is not installed (docs/operations.md, Run on a GPU)", file=sys.stderr)
        sys.exit(2)
    release = find(arguments.releases)
    encoder, *_ = encoder_folders(release, verify_searchable(release), "float32")
    data = data_folder() / _DATASET
    if arguments.search:
        work, target = arguments.search
        found = search(encoder, work, data)
        np.savez(target, **{"vectors": found.vectors, "copied": np.array(found.copied)} | found.positions)  # type: ignore[arg-type]  # numpy's
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        gpu, processors = (_searched(arguments.releases, work, name) for name in ("gpu", "processors"))
        flat = load_index(work / "flat", "flat", gpu.vectors.shape[1])
        differing = differences(gpu, processors, flat.vectors[np.arange(len(flat))])
    rows = [row for own in ({}, _ON_PROCESSORS) for row in replies(arguments.releases, data, own)]
    rows.sort(key=lambda row: int(row[0]))
    print(f"{_QUESTIONS:,} questions, {_DOCUMENTS:,} documents of {_DATASET}, top {_K}.\n")
    print(table(["GPU against processors", "found"], [[name, f"{value:.3g}"] for name, value in differing.items()]))
    print(f"\nIndexes searched on the GPU: {', '.join(gpu.copied) or 'none'}.\n")
    print(table(["clients", "on", "replies/s", "p50 ms", "p99 ms"], rows))
    *ranked, score = differing.values()
    if any(ranked) or score > _TOLERANCE or len(gpu.copied) < len(KINDS):
        sys.exit("gpu-check: the GPU differs from processors, or did not search every index")


def _searched(releases: Path, work: Path, device: str) -> Found:
    """Search in a new process, because one that has used a GPU keeps using it."""
    target = work / f"{device}.npz"
    own = {} if device == "gpu" else _ON_PROCESSORS
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--releases", str(releases), "--search", str(work)]
    subprocess.run([*command, str(target)], check=True, env=environment() | own)
    with np.load(target) as arrays:
        return Found(arrays["vectors"], {kind: arrays[kind] for kind in KINDS}, arrays["copied"].tolist())


def _with_lists(index: AnyIndex) -> AnyIndex:
    if isinstance(index, ApproximateIndex):
        index.breadth = _LISTS
    return index


def _texts(path: Path, count: int | None) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        records: Iterable[dict[str, str]] = (json.loads(line) for line in itertools.islice(lines, count))
        return [f"{record.get('title') or ''} {record['text']}".strip() for record in records]


if __name__ == "__main__":
    main()
