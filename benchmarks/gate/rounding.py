"""Measure how far scores move when the last bits of the weights change, as on another processor."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.markdown import table
from taugate.calibration.encoding.source import int8_encoder
from taugate.retrieval.encoder.encoder import FILES, MODEL, OnnxEncoder

QUERIES = 300
_K = 5


def measured(source: Path, texts: list[str], documents: np.ndarray) -> str:
    """Measure the encoder in `source` and its int8 version, as a table."""
    rows, uncut = [], {}
    for name, folder in (("float32", source), ("int8", int8_encoder(source))):
        uncut[name] = _scores(OnnxEncoder.load(folder), texts, documents)
        rows += [
            [f"{name}, weights changed by {change:g}", *_moved(_changed(folder, change, texts, documents), uncut[name])]
            for change in (1e-7, 1e-6)
        ]
    rows.append(["float32 beside int8", *_moved(uncut["float32"], uncut["int8"])])
    return table(["encoder", "half the queries", "99 in 100", "all"], rows)


def _moved(scores: np.ndarray, before: np.ndarray) -> list[str]:
    largest = np.abs(scores - before).max(axis=1)
    return [f"{np.percentile(largest, share):.2g}" for share in (50, 99, 100)]


def _changed(folder: Path, change: float, texts: list[str], documents: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    model = onnx.load(folder / MODEL)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1:
            changed = values * (1 + change * rng.standard_normal(values.shape))
            tensor.CopyFrom(numpy_helper.from_array(changed.astype(np.float32), tensor.name))
    with tempfile.TemporaryDirectory() as target:
        for name in set(FILES) - {MODEL}:
            shutil.copyfile(folder / name, Path(target) / name)
        onnx.save(model, Path(target) / MODEL)
        return _scores(OnnxEncoder.load(Path(target)), texts, documents)


def _scores(encoder: OnnxEncoder, texts: list[str], documents: np.ndarray) -> np.ndarray:
    vectors = encoder.encode(texts[:QUERIES], "query")
    return np.sort(vectors @ documents.T, axis=1)[:, -_K:]
