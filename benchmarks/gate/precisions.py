"""Compare int8 encoders: the loss of each, its speed, and whether a batch changes a query's vector."""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.experiment import Experiment
from benchmarks.gate import openvino_runtime, rounding
from benchmarks.markdown import share, table
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.export.int8 import quantize
from taugate.calibration.gate.baseline import SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.settings.settings import MARGIN, GateSettings
from taugate.retrieval.encoder.encoder import FILES, MODEL, OnnxEncoder

HEADING = "Precision of the encoder"
SET = "squad_v2_dev"
_K = 5
_ROUNDS, _TIMED = 5, 1000
_CALIBRATING = 200  # queries whose activations the static quantisation sees
_Write = Callable[[Path, Path, OnnxEncoder, list[str]], object]


class _QueryReader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Encode queries one by one."""

    def __init__(self, encoder: OnnxEncoder, texts: list[str]) -> None:
        self._tokens = iter(encoder.tokenize(texts, "query"))

    def get_next(self) -> dict[str, np.ndarray] | None:
        tokens = next(self._tokens, None)
        if tokens is None:
            return None
        ids = np.array([tokens.ids])
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _prepared(source: Path, target: Path) -> Path:
    prepared = target.with_suffix(".prepared")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    return prepared


def _static(source: Path, target: Path, encoder: OnnxEncoder, texts: list[str]) -> None:
    quantize_static(
        str(_prepared(source, target)),
        str(target),
        _QueryReader(encoder, texts[:: max(1, len(texts) // _CALIBRATING)][:_CALIBRATING]),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
        op_types_to_quantize=["MatMul"],
        calibrate_method=CalibrationMethod.MinMax,
    )


_WAYS: dict[str, _Write] = {
    "onnxruntime dynamic, per tensor (naive)": lambda source, target, *_: quantize_dynamic(
        str(source), str(target), weight_type=QuantType.QInt8
    ),
    "onnxruntime dynamic, per channel": lambda source, target, *_: quantize_dynamic(
        str(_prepared(source, target)), str(target), weight_type=QuantType.QInt8, per_channel=True
    ),
    "onnxruntime static, per channel": _static,
    "**per token and channel (in use)**": lambda source, target, *_: quantize(source, target),
}


def section(experiment: Experiment) -> str:
    """Measure each int8 variant against float32 and format the tables."""
    encoded = experiment.encoded(SET)
    source = exported_encoder(DEFAULT_ENCODER)
    float32 = OnnxEncoder.load(source)
    texts = [query.text for query in encoded.queries]
    trial = SearchTrial.build(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, _K)
    baseline, units = trial.outcomes(), SamplingUnits.from_labels(clusters(encoded.queries))
    with tempfile.TemporaryDirectory() as folder:
        encoders = {"float32": float32}
        for number, (name, write) in enumerate(_WAYS.items()):
            target = Path(folder) / str(number)
            target.mkdir()
            for file in set(FILES) - {MODEL}:
                shutil.copyfile(source / file, target / file)
            write(source / MODEL, target / MODEL, float32, texts)
            encoders[name] = OnnxEncoder.load(target)
        lone_thread = {name: OnnxEncoder.load(each.folder, 1) for name, each in encoders.items()}
        if openvino_runtime.available():
            name = "OpenVINO, bfloat16"
            threads = len(os.sched_getaffinity(0))
            encoders[name] = openvino_runtime.bfloat16(source, threads)
            lone_thread[name] = openvino_runtime.bfloat16(source, 1)
        rows = []
        paces, lone_paces = _paces(encoders, texts), _paces(lone_thread, texts)
        for name, encoder in encoders.items():
            vectors = encoder.encode(texts, "query")
            moved = SearchTrial.build(encoded.queries, vectors, encoded.vectors.documents, _K)
            (record,) = judge(baseline, [GateCandidate(name, "precision", moved.outcomes())], units, GateSettings())
            alone = np.vstack([encoder.encode([text], "query") for text in texts[:100]])
            rows.append(
                [
                    name,
                    f"{(encoder.folder / MODEL).stat().st_size / 1e6:.0f} MB",
                    *paces[name],
                    lone_paces[name][1],
                    f"{np.abs(alone - vectors[:100]).max():.1g}",
                    *(f"{each.loss.mean:+.4f} (≤ {each.loss.upper:+.4f})" for each in (record.accuracy, record.ndcg)),
                    f"{record.p_adjusted:.3g}",
                    "yes" if record.admitted else "no",
                ]
            )
    header = ["encoder", "model", "queries/s", "ratio", "one query", "ratio, one thread"]
    header += ["changes with company by", "loss of accuracy@5", "loss of NDCG@10", "p", "admitted"]
    return f"""\
all-MiniLM-L6-v2 encodes {len(texts):,} answerable queries of {SET} in each precision; the documents stay in float32. The margin is {share(MARGIN)}, with 95 %
confidence. Speeds are medians of {_ROUNDS} rounds in which the encoders take turns, with {_TIMED:,} queries on {len(os.sched_getaffinity(0))} threads. Ratios are to float32 in the
same round. "Changes with company by" compares a query encoded alone with the same query in a batch: the largest difference of a
component.

{table(header, rows)}

On x86, onnxruntime does not multiply in float16 or bfloat16; it would convert to float32 and back. OpenVINO does, on processors with
AVX-512 BF16 or AMX. It adds 180 MB to onnxruntime's 70 and gains less than int8, so Taugate does not use it.

### What another processor changes

Another processor adds up in another order, which changes the last bits. To imitate that, every weight that is not an integer is changed by a
random 1e-7 or 1e-6 of itself. The table says how far the scores of {rounding.QUERIES} queries' top 5 then move. In int8, one activation that rounds
the other way changes everything after it, as much as rounding itself does. So an int8 release is as good on another processor, but
single queries get other scores there.

{rounding.measured(source, texts, encoded.vectors.documents)}
"""


def _paces(encoders: dict[str, OnnxEncoder], texts: list[str]) -> dict[str, list[str]]:
    batch: dict[str, list[float]] = {name: [] for name in encoders}
    lone: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(_ROUNDS):
        for name, encoder in encoders.items():
            batch[name].append(_seconds(encoder, [texts[:_TIMED]]))
            lone[name] += [_seconds(encoder, [[text]]) for text in texts[:50]]
    paces = {}
    for name in encoders:
        ratios = [base / each for base, each in zip(batch["float32"], batch[name], strict=True)]
        paces[name] = [
            f"{_TIMED / statistics.median(batch[name]):,.0f}",
            f"{statistics.median(ratios):.2f}",
            f"{1000 * statistics.median(lone[name]):.2f} ms",
        ]
    return paces


def _seconds(encoder: OnnxEncoder, batches: list[list[str]]) -> float:
    began = time.perf_counter()
    for texts in batches:
        encoder.encode(texts, "query")
    return time.perf_counter() - began
