"""An encoder in C for BERT-like models, for Taugate: faster on processors with AVX2 or AVX-512."""

from importlib import import_module
from typing import cast

from taugate.retrieval.encoder.bert import Kernel


def _built() -> Kernel | None:
    try:
        return cast("Kernel", import_module("taugate_kernel.kernel"))
    except ModuleNotFoundError:  # installed without a compiler
        return None


kernel = _built()
