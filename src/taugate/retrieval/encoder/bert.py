"""A BERT-like model with int8 weights, run by kernel.c on texts of any lengths without padding.

Every product is x·W ≈ Σ_b s_b·c_b·(q_b·Q_b) over blocks b of 64 inputs: s_b is the scale of the token's block, c_b that
of the output's. Inputs are first divided by factors that move outliers into the weights (SmoothQuant, Xiao et al., ICML
2023, eq. 4). Similarities stay within .0015 of those in float32 on average (docs/benchmarks/encoder.md).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EncoderError, EncoderUnsupported, ReleaseError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import Arrays, map_tensors

try:
    from taugate.retrieval.encoder import kernel
except ImportError:  # installed without a compiler
    kernel = None  # type: ignore[assignment]

WEIGHTS = "weights.safetensors"
LINEARS = ("qkv", "out", "up", "down")  # the products of a layer, in their order
BLOCK = 64  # inputs with a scale of their own; kernel.c has the same number
_PANEL = 48  # outputs of a tile of kernel.c
_PLAIN = "plain"  # the path of kernel.c for any processor, slower than onnxruntime
_MAX_ROWS = 1024  # tokens per call, so that inputs and outputs of a product stay in the cache of a core


def is_supported() -> bool:
    """Return whether this installation has the kernel, and this processor instructions that make it worth using."""
    return kernel is not None and kernel.paths()[0] != _PLAIN


class BertModel:
    """The model of a file that `taugate.calibration.export.bert` wrote."""

    packed = True

    def __init__(self, path: Path, threads: int, processor_path: str | None = None) -> None:
        """Read the weights.

        Args:
            path: The file.
            threads: Threads that encode a batch.
            processor_path: Path of kernel.c, one of `kernel.paths()`; by default the fastest of this processor.

        Raises:
            EncoderError: If the file is not such a model.
            EncoderUnsupported: If this installation has no kernel, or this processor no instructions for it.
        """
        if kernel is None or not (processor_path or is_supported()):
            raise EncoderUnsupported(f"{path}: int8 needs a processor with AVX2, and an installation with a compiler")
        try:
            arrays = map_tensors(path)
            self.dimension = int(arrays["words"].shape[1])
            self._model = kernel.model(*_arguments(arrays))
        except (ReleaseError, ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
            raise EncoderError(f"{path}: not an int8 model; calibrate again") from error
        self._encode = kernel.encode
        self._path = kernel.paths().index(processor_path or kernel.paths()[0])
        self._threads = threads

    def batches(self, lengths: Sequence[int]) -> Iterator[range]:
        """Yield ranges of texts of any lengths, with at most _MAX_ROWS tokens a thread, or one text.

        Args:
            lengths: Tokens of each text.
        """
        yield from _parts(lengths, _MAX_ROWS * self._threads)

    def padded(self, length: int) -> int:
        """Return the length itself: texts of any lengths are packed without padding."""
        return length

    def run(self, texts: Sequence[Sequence[int]]) -> Float32:
        """Encode texts as unit vectors, (n, dimension) float32.

        Args:
            texts: Token ids of n texts, at least one of each.
        """
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        lengths = [len(text) for text in texts]
        parts = list(_parts(lengths, min(_MAX_ROWS, -(-sum(lengths) // self._threads))))
        if len(parts) == 1:
            self._fill(texts, vectors)
            return vectors
        with ThreadPoolExecutor(self._threads) as pool:  # the kernel releases the lock of the interpreter

            def fill(part: range) -> None:
                self._fill(texts[part.start : part.stop], vectors[part.start : part.stop])

            list(pool.map(fill, parts))
        return vectors

    def _fill(self, texts: Sequence[Sequence[int]], vectors: Float32) -> None:
        ids = np.fromiter((token for text in texts for token in text), dtype=np.int32)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int32)
        self._encode(self._model, ids, ends, vectors, self._path)


def _parts(lengths: Sequence[int], limit: int) -> Iterator[range]:
    """Yield ranges of texts with at most `limit` tokens, or one text."""
    start = tokens = 0
    for position, length in enumerate(lengths):
        if tokens and tokens + length > limit:
            yield range(start, position)
            start, tokens = position, 0
        tokens += length
    if start < len(lengths):
        yield range(start, len(lengths))


def _arguments(arrays: Arrays) -> tuple[int, int, int, int, int, int, int, float, list[NDArray[Any]]]:
    """Arrange the arrays for kernel.model, which checks their sizes.

    Raises:
        ValueError: If they do not fit together.
        KeyError: If one is missing.
    """
    words, places = arrays["words"], arrays["positions"]
    heads, first_token = (int(number) for number in arrays["shape"])
    layers = sum(name.endswith(".norm1") for name in arrays)
    ordered: list[NDArray[Any]] = [_float32(words), _float32(places), _float32(arrays["norm"])]
    for layer in range(layers):
        for linear, norm in zip(LINEARS, ("", "norm1", "", "norm2"), strict=True):
            ordered += _packed(*(arrays[f"{layer}.{linear}.{name}"] for name in ("weight", "scale", "bias", "smooth")))
            if norm:
                ordered.append(_float32(arrays[f"{layer}.{norm}"]))
    inner = len(arrays["0.up.bias"])
    epsilon = float(arrays["epsilon"][0])
    return len(words), len(places), words.shape[1], inner, heads, layers, first_token, epsilon, ordered


def _packed(
    weight: NDArray[np.int8], scale: Float32, bias: Float32, smooth: Float32
) -> tuple[NDArray[np.uint8], Float32, Float32, Float32]:
    """Arrange a product as kernel.c reads it: [n / 48][k / 4][48][4] and [n / 48][k / 64][48].

    Args:
        weight: (n, k) int8.
        scale: (n, k / 64).
        bias: (n,).
        smooth: (k,), factors of the inputs.
    """
    outputs, inputs = weight.shape
    missing = -outputs % _PANEL
    fits = weight.dtype == np.int8 and scale.shape == (outputs, inputs // BLOCK) and bias.shape == (outputs,)
    # Fewer outputs would take many times the memory of the file, and paths of kernel.c would disagree on -128.
    if not fits or outputs < _PANEL or (weight == np.iinfo(np.int8).min).any():
        raise ValueError("weights, scales and offsets do not fit together")
    shifted = np.pad(weight.view(np.uint8) ^ np.uint8(128), ((0, missing), (0, 0)), constant_values=128)
    panels = shifted.reshape(-1, _PANEL, inputs // 4, 4).transpose(0, 2, 1, 3)
    scales = np.pad(scale, ((0, missing), (0, 0))).reshape(-1, _PANEL, inputs // BLOCK).transpose(0, 2, 1)
    return np.ascontiguousarray(panels), _float32(scales), _float32(np.pad(bias, (0, missing))), _float32(smooth)


def _float32(array: NDArray[Any]) -> Float32:
    if array.dtype != np.float32:
        raise ValueError("a float32 array is needed")
    return np.require(array, requirements=("C", "A"))
