"""The kernel's precisions beside those of onnxruntime and OpenVINO: processor time, and the change of similarities."""

import importlib.util
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.encoder.limit import limits
from benchmarks.results import machine
from taugate.calibration.encoding.source import DEFAULT_ENCODER, CheaperPrecision, cheaper_encoder, exported_encoder
from taugate.calibration.export.weights import quantize
from taugate.release.encoder import LAYOUT, MODEL, WEIGHTS
from taugate.retrieval.encoder.bert import PRECISIONS, BertModel, Graph, GraphWeights, kernel
from taugate.retrieval.encoder.encoder import GRAPH_FILES, ExportedEncoder

_QUESTIONS, _ROUNDS, _TOGETHER = 160, 5, (1, 16)
SETS = ("squad_v2_dev", "covidqa_chunks", "cosqa", "scifact")
Texts = tuple[list[str], list[str]]  # documents and queries
_ONCE = """\
Without its factors, the kernel's int8 changes similarities by .0017 to .0022. With SmoothQuant's α = .5 they change by .0011 to .0013, and with .6,
which was chosen on queries of squad_v2_dev, by .0010 to .0012. Three hundred texts choose nearly the same factors as one hundred.
"""


def of_onnxruntime(encoder: ExportedEncoder, folder: Path) -> Iterator[ExportedEncoder]:
    """Yield the encoder in float32 and in int8 as on a machine without the kernel, and in onnxruntime's own int8."""
    for name in ("float32", "int8", "dynamic"):
        (folder / name).mkdir()
        for file in GRAPH_FILES:
            shutil.copy(encoder.folder / file, folder / name)
        if name == "int8":
            quantize(encoder.folder / MODEL, folder / name / MODEL)
        if name == "dynamic":
            from onnxruntime.quantization import quantize_dynamic

            quantize_dynamic(encoder.folder / MODEL, folder / name / MODEL, per_channel=True, reduce_range=True)
        yield ExportedEncoder.load(folder / name, 1)


class _OpenVino:
    """Runs a graph by OpenVINO on one thread, with the call of an onnxruntime session."""

    def __init__(self, path: Path) -> None:
        import openvino

        self._model = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_NUM_THREADS": 1})

    def run(self, _: None, feed: Mapping[str, Any]) -> list[Any]:
        return [self._model(feed)[0]]


def by_openvino(folder: Path) -> dict[str, ExportedEncoder]:
    """Return the graph of a folder by OpenVINO, which may choose bfloat16, under the name of its row; nothing if it is not installed."""
    if importlib.util.find_spec("openvino") is None:
        return {}
    encoder = ExportedEncoder.load(folder, 1)
    if isinstance(encoder._model, Graph):
        encoder._model._session = _OpenVino(folder / MODEL)
    return {"OpenVINO, default precision": encoder}


def by_kernel(float32: ExportedEncoder, some: list[str]) -> dict[str, ExportedEncoder]:
    """Return the encoder by every path of the kernel but plain C, under the names of their rows.

    Args:
        float32: The encoder that the kernel runs.
        some: Texts that choose the factors of int8.
    """
    compiled, found = kernel(), {}
    for precision in ("float32", *get_args(CheaperPrecision)):
        for path in compiled.paths(PRECISIONS[precision])[:-1] if compiled else ():
            folder = float32.folder if precision == "float32" else cheaper_encoder(float32.folder, precision, some)
            encoder = ExportedEncoder.load(folder, 1)
            weights = folder / (LAYOUT if precision == "float32" else WEIGHTS)
            encoder._model = BertModel(weights, precision, 1, path)
            found[f"{precision}, kernel, {path}"] = encoder
    return found


def section(encoder: ExportedEncoder, graphs: Iterable[ExportedEncoder], texts: dict[str, Texts]) -> list[str]:
    """Measure and return the lines of the page; the kernel's factors are from documents of squad_v2_dev.

    Args:
        encoder: The encoder in float32 that the kernel runs.
        graphs: What `of_onnxruntime` makes of it.
        texts: Documents and queries of every data set.
    """
    documents, queries = texts[SETS[0]]
    float32, int8, dynamic = graphs
    encoders = {
        "float32, onnxruntime": float32,
        **by_openvino(float32.folder),
        "int8, onnxruntime": int8,
        "int8 per channel, onnxruntime": dynamic,
        **by_kernel(encoder, [text[:120] for text in documents[:100]]),
    }
    tensors = GraphWeights.read(encoder.folder / LAYOUT).tensors
    tokens = encoder.tokenize(queries[:_QUESTIONS], "query")
    products = sum(math.prod(shape) for name, (_, *shape) in tensors.items() if name[0].isdigit() and len(shape) == 2)
    products *= sum(text.count for text in tokens)
    least: dict[tuple[str, int], float] = {}
    most: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        loops = limits(Path(folder))
        for together in _TOGETHER * _ROUNDS:
            for name, measure in loops.items():
                most[name] = max(measure(), most.get(name, 0.0))
            for name, timed in encoders.items():
                began = time.process_time()
                for start in range(0, _QUESTIONS, together):
                    timed.embed(tokens[start : start + together])
                spent = time.process_time() - began
                least[name, together] = min(spent, least.get((name, together), spent))
    exact = {}
    for some_documents, some_queries in texts.values():
        stored = float32.encode(some_documents[:100], "document").T
        exact[tuple(some_queries[:300])] = stored, float32.encode(some_queries[:300], "query")
    rows = []
    for name, timed in encoders.items():
        cells = [f"{least[name, together] * 1000 / _QUESTIONS:.2f} ms" for together in _TOGETHER]
        limit = most.get("int8" if name.startswith("int8") else "float32")
        cells += [f"{products / least[name, together] / limit:.2f}" if limit else "" for together in _TOGETHER]
        for questions, (stored, vectors) in exact.items():
            cells.append(f"{np.abs((timed.encode(questions, 'query') - vectors) @ stored).mean():.5f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    measured = " and ".join(f"{rate / 1e9:.0f} G/s in {name}" for name, rate in most.items()) or "not measured here"
    return [
        "## Precisions",
        "",
        f"Processor time of a question alone and among 16 of mixed lengths: the least of {_ROUNDS} rounds in turn, on one thread, "
        f"{_QUESTIONS} questions of squad_v2_dev, without tokenization. Then the share of what AVX2 multiplies at most, which loops of "
        f"vfmadd231ps, and of vpmaddubsw with vpmaddwd, show in the same rounds: {measured}; AVX-512 can do more. "
        "Then the mean absolute change of the similarity of 300 questions and 100 documents. One hundred documents of squad_v2_dev "
        f"choose the kernel's factors. Measured on {machine()}.",
        "",
        f"| encoder | alone | among 16 | share, alone | share, among 16 | {' | '.join(SETS)} |",
        f"|---|---|---|---|---|{'---|' * len(SETS)}",
        *rows,
        "",
        *_ONCE.splitlines(),
        "",
    ]


def some_texts(folder: Path) -> Texts:
    """Some documents and queries of a data set."""
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    queries = [json.loads(line)["text"] for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    return (
        [f"{document.get('title', '')} {document['text']}" for document in corpus[:: max(1, len(corpus) // 100)]],
        queries[:: max(1, len(queries) // 990)],
    )


def main() -> None:
    """Print the section for this machine alone."""
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    with tempfile.TemporaryDirectory() as folder:
        graphs = of_onnxruntime(encoder, Path(folder))
        texts = {name: some_texts(Path(os.environ["TAUGATE_DATA"]) / name) for name in SETS}
        print("\n".join(section(encoder, graphs, texts)))


if __name__ == "__main__":
    main()
