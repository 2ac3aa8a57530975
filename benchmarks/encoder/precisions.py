"""The kernel's precisions beside onnxruntime's: processor time, and the change of similarities."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np

from taugate.calibration.encoding.source import CheaperPrecision, cheaper_encoder
from taugate.calibration.export.weights import quantize
from taugate.release.encoder import MODEL
from taugate.retrieval.encoder.encoder import GRAPH_FILES, ExportedEncoder

_QUESTIONS, _ROUNDS, _TOGETHER = 160, 5, (1, 16)
SETS = ("squad_v2_dev", "covidqa_chunks", "cosqa", "scifact")
Texts = tuple[list[str], list[str]]  # documents and queries
_ONCE = """\
Without its factors, the kernel's int8 changes similarities by .0017 to .0022. With SmoothQuant's α = .5 they change by .0011 to .0013, and with .6,
which was chosen on queries of squad_v2_dev, by .0010 to .0012. Three hundred texts choose nearly the same factors as one hundred.
"""


def of_onnxruntime(encoder: ExportedEncoder, folder: Path) -> Iterator[ExportedEncoder]:
    """Yield the encoder in float32 and in int8 as on a machine without the kernel."""
    for precision in ("float32", "int8"):
        (folder / precision).mkdir()
        for name in GRAPH_FILES:
            shutil.copy(encoder.folder / name, folder / precision)
        if precision == "int8":
            quantize(encoder.folder / MODEL, folder / precision / MODEL)
        yield ExportedEncoder.load(folder / precision, 1)


def section(
    kernel: ExportedEncoder, float32: ExportedEncoder, int8: ExportedEncoder, texts: dict[str, Texts]
) -> list[str]:
    """Measure and return the lines of the page; the kernel's factors are from documents of squad_v2_dev.

    Args:
        kernel: The encoder in float32 that the kernel runs.
        float32: The same as a graph.
        int8: The same as a graph in int8.
        texts: Documents and queries of every data set.
    """
    documents, queries = texts[SETS[0]]
    some = [text[:120] for text in documents[:100]]
    encoders = {"float32, onnxruntime": float32, "int8, onnxruntime": int8, "float32, kernel": kernel.single_threaded()}
    for precision in get_args(CheaperPrecision):
        encoders[f"{precision}, kernel"] = ExportedEncoder.load(cheaper_encoder(kernel.folder, precision, some), 1)
    least: dict[tuple[str, int], float] = {}
    for together in _TOGETHER * _ROUNDS:
        for name, encoder in encoders.items():
            began = time.process_time()
            for start in range(0, _QUESTIONS, together):
                encoder.encode(queries[start : start + together], "query")
            spent = (time.process_time() - began) * 1000 / _QUESTIONS
            least[name, together] = min(spent, least.get((name, together), spent))
    rows = []
    for name, encoder in encoders.items():
        cells = [f"{least[name, together]:.2f} ms" for together in _TOGETHER]
        for some_documents, some_queries in texts.values():
            stored = float32.encode(some_documents[:100], "document").T
            questions = some_queries[:300]
            moved = (encoder.encode(questions, "query") - float32.encode(questions, "query")) @ stored
            cells.append(f"{np.abs(moved).mean():.5f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return [
        "## Precisions",
        "",
        f"Processor time of a question alone and among 16 of mixed lengths: the least of {_ROUNDS} rounds in turn, on one thread, "
        f"{_QUESTIONS} questions of squad_v2_dev, tokenization included. Then the mean absolute change of the similarity of 300 "
        "questions and 100 documents. One hundred documents of squad_v2_dev choose the kernel's factors.",
        "",
        f"| encoder | alone | among 16 | {' | '.join(SETS)} |",
        f"|---|---|---|{'---|' * len(SETS)}",
        *rows,
        "",
        *_ONCE.splitlines(),
        "",
    ]
