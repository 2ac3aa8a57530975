"""Compare every index kind over 1,000,000 vectors: time to build and open, memory, and time of a search."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.checkout import environment
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.calibration.gate.indexes import set_breadth
from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.build import build
from taugate.retrieval.index.files import save, sizes
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.kinds import Kind

HEADING = "1,000,000 documents"
SET = "mixed_large"
_DOCUMENTS, _QUERIES, _K = 1_000_000, 500, 5
_JITTER = 0.3  # length of the noise beside a vector of length 1: copies have a cosine of about .92 with each other
_MARGIN = 0.005
_KINDS: tuple[Kind, ...] = ("flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq")


def section(experiment: Experiment) -> str:
    """Build, open and search every index kind over synthetic vectors."""
    encoded = experiment.encoded(SET)
    rng = np.random.default_rng(experiment.seed)
    documents = _tiled(encoded.vectors.documents, rng)
    queries = encoded.vectors.answerable[rng.permutation(len(encoded.queries))[: 2 * _QUERIES]]
    choosing, asked = queries[:_QUERIES], queries[_QUERIES:]
    flat = FlatIndex.build(documents)
    exact = flat.search(asked, 10).positions
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "queries.npy", asked)
        for kind in _KINDS:
            where = Path(folder) / kind
            where.mkdir()
            began = time.perf_counter()
            index = build(kind, documents)
            built = time.perf_counter() - began
            if isinstance(index, ApproximateIndex):
                set_breadth(index, flat, choosing, 10, _MARGIN)
            save(index, where)
            breadth = str(index.breadth) if isinstance(index, ApproximateIndex) else ""
            whole = sizes(index)[1]
            del index
            rows.append([kind, breadth, f"{built:,.0f} s", f"{whole / 1e9:.2f} GB", *_opened(where, kind, exact)])
            print(rows[-1], flush=True)
            for file in where.iterdir():
                file.unlink()
    header = ["index", "breadth", "built in", "files", "opened in", "first answer", "own memory", "mapped memory"]
    header += ["p50", "p99", "recall@10"]
    return f"""\
The {len(encoded.vectors.documents):,} document vectors of {SET} (all-MiniLM-L6-v2) are repeated up to {_DOCUMENTS:,}. Gaussian noise of length {_JITTER} is added to each,
and the sum is scaled back to length 1. Such vectors show how large and how fast an index is. They do not show how well it finds real
documents, as copies lie nearer to each other than real documents do.

Each index runs in a process of its own, with the files already in the page cache. It answers {_QUERIES} real queries one at a time, top {_K}; {_QUERIES}
others chose the breadth. Memory is what the process gained after all queries, mapped files included.

{table(header, rows)}
"""


def _tiled(vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    count, dimension = vectors.shape
    tiled = np.empty((_DOCUMENTS, dimension), dtype=np.float32)
    for start in range(0, _DOCUMENTS, count):
        part = vectors[: _DOCUMENTS - start]
        noise = rng.standard_normal(part.shape, dtype=np.float32) * (_JITTER / dimension**0.5)
        tiled[start : start + len(part)] = part + noise
    tiled /= np.linalg.norm(tiled, axis=1, keepdims=True)
    return tiled


def _opened(folder: Path, kind: Kind, exact: np.ndarray) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gate.open_index",
        str(folder),
        kind,
        str(folder.parent / "queries.npy"),
        str(_K),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    said = json.loads(done.stdout)
    found = np.array(said["positions"])
    milliseconds = 1000 * np.array(said["seconds"])
    return [
        f"{said['load']:.2f} s",
        f"{said['first']:.2f} s",
        f"{said['RssAnon'] / 1e6:,.0f} MB",
        f"{said['RssFile'] / 1e6:,.0f} MB",
        f"{np.percentile(milliseconds, 50):.2f} ms",
        f"{np.percentile(milliseconds, 99):.2f} ms",
        share(float((found[:, :, None] == exact[:, None, :]).any(axis=1).mean()), 4),
    ]
