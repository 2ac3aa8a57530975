"""The exported encoder run by OpenVINO in bfloat16, where that package is installed: a runtime that was tried."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from taugate.retrieval.encoder.encoder import MODEL, OnnxEncoder


class _Session:
    """An OpenVINO session with the part of the onnxruntime interface that OnnxEncoder uses."""

    def __init__(self, path: Path, threads: int) -> None:
        import openvino

        options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": threads}
        self._request = openvino.Core().compile_model(str(path), "CPU", options).create_infer_request()

    def run(self, names: Any, feed: dict[str, np.ndarray]) -> list[np.ndarray]:  # noqa: ANN401 (as onnxruntime has it)
        """The outputs; all of them, whatever `names` says."""
        return [np.array(self._request.infer(feed)[0])]


def available() -> bool:
    """Return True if the package is installed."""
    return find_spec("openvino") is not None


def bfloat16(source: Path, threads: int) -> OnnxEncoder:
    """The encoder of a folder."""
    encoder = OnnxEncoder.load(source, threads)
    encoder._session = _Session(source / MODEL, threads)
    return encoder
