"""The models of encoders: a graph for onnxruntime, or BERT-like weights for the kernel.

In int8, every product is x·W ≈ Σ_b s_b·c_b·(q_b·Q_b) over blocks b of 64 inputs: s_b is the scale of the token's block,
c_b that of the output's. Inputs are first divided by factors that move outliers into the weights (SmoothQuant, Xiao et
al., ICML 2023, eq. 4). In bfloat16, inputs and weights have 8 significant bits, and sums are in float32. Similarities
stay within .0015 and .0003 of those in float32 on average (benchmarks/results/encoder.md).

kernel.json says where the float32 weights of a BERT-like graph are in it, so that the kernel reads them in place. The
digest of the encoder does not cover it: without it, or without AVX-512, onnxruntime runs the same model.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from taugate.errors import EncoderError, EncoderUnsupported, ReleaseError
from taugate.plugins import load_all
from taugate.policy.arrays import Float32
from taugate.release.encoder import DATA, LAYOUT, MODEL, Precision
from taugate.retrieval.hardware import new_session, uses_gpu
from taugate.storage.files import read_bounded
from taugate.storage.tensors import Arrays, map_tensors

if TYPE_CHECKING:
    import onnxruntime


LINEARS = ("qkv", "out", "up", "down")  # the products of a layer, in their order
PRECISIONS: dict[Precision, int] = {"int8": 0, "bfloat16": 1, "float32": 2}  # their numbers in kernel.c
_TYPES = {"int8": np.int8, "bfloat16": np.uint16, "float32": np.float32}  # of the weights of products
_NEEDED: dict[Precision, str] = {"int8": "AVX2", "bfloat16": "AVX2", "float32": "AVX-512"}
# What a text has: the mean of its tokens or its first token, of unit length, its first token as it is, or all of them.
MEAN, FIRST, FIRST_AS_IS, TOKENS = range(4)  # as in kernel.c
BLOCK = 64  # inputs with a scale of their own in int8; kernel.c has the same number
# Exponent below which kernel.c takes a number in bfloat16 for zero: 2^-49, so that no sum is subnormal.
MIN_EXPONENT = 127 - 49
_PANEL = 48  # outputs of a tile of kernel.c
_PLAIN = "plain"  # the path of kernel.c for any processor, slower than onnxruntime
_MAX_ROWS = 1024  # tokens per call, so that inputs and outputs of a product stay in the cache of a core
_Places = NDArray[np.int64]


# Tokens per batch; no other size is measurably faster (benchmarks/results/encoder.md). A longer text has its own batch.
_BATCH_TOKENS = 1024

_MAX_BYTES = 1 << 20  # a hundred times what a model of 24 layers takes


class Kernel(Protocol):
    """The encoder in C of the plug-in taugate-kernel, which is an entry point of `taugate.encoders`."""

    # of a precision, the names of the ways to compute on this processor, the fastest first
    paths: Callable[[int], tuple[str, ...]]
    # a model of a precision, with seven sizes, a pooling, an epsilon and its weights
    model: Callable[[int, int, int, int, int, int, int, int, int, float, Sequence[NDArray[Any]]], object]
    # encodes token ids with the ends of the texts as vectors, by a path
    encode: Callable[[object, NDArray[np.int32], NDArray[np.int32], Float32, int], None]
    # for late_interaction.py
    largest_products: Callable[
        [int, NDArray[np.uint8], Float32, NDArray[np.int8], Float32, _Places, _Places, Float32, int], None
    ]


@cache
def kernel() -> Kernel | None:
    """Return the kernel; None without the plug-in taugate-kernel, or if it was installed without a compiler."""
    return next((found for name, found in load_all("encoders") if name == "kernel"), None)


def kernel_path(precision: Precision) -> str | None:
    """Return the fastest path of kernel.c on this processor; None if the kernel is missing."""
    compiled = kernel()
    return None if compiled is None else compiled.paths(PRECISIONS[precision])[0]


def processor_path(precision: Precision) -> str | None:
    """Return the path of kernel.c on this processor, avx512 or avx2; None if the kernel is missing or would be slow."""
    path = kernel_path(precision)
    return None if path == _PLAIN else path


class BertModel:
    """The model of a file that `taugate.calibration.export.bert` wrote.

    Attributes:
        gives_tokens: Whether a text has a vector for each token.
        vocabulary: Number of words. The id of a token of type t is that of its word, plus t times this number.
    """

    packed = True

    def __init__(self, path: Path, precision: Precision, threads: int, processor: str | None = None) -> None:
        """Read the weights.

        Args:
            path: The file: weights.safetensors, or kernel.json beside a graph in float32.
            processor: Path of kernel.c, one of `kernel.paths(…)`; by default the fastest of this processor.
        """
        compiled, fastest = kernel(), processor or processor_path(precision)
        if compiled is None or fastest is None:
            raise EncoderUnsupported(
                f"{path}: {precision} needs a processor with {_NEEDED[precision]}, and the plug-in taugate-kernel"
            )
        try:
            arrays = GraphWeights.read(path).arrays(path.parent) if path.name == LAYOUT else map_tensors(path)
            self.vocabulary, self.dimension = arrays["words"].shape
            self.gives_tokens = int(arrays["shape"][1]) == TOKENS
            self._model = compiled.model(PRECISIONS[precision], *_arguments(arrays, precision))
        except (ReleaseError, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
            raise EncoderError(f"{path}: not a model in {precision}; calibrate again") from error
        self._encode = compiled.encode
        self._path = compiled.paths(PRECISIONS[precision]).index(fastest)
        self._threads = threads

    def batches(self, lengths: Sequence[int]) -> Iterator[range]:
        """Yield ranges of texts of any lengths, with at most _MAX_ROWS tokens a thread, or one text."""
        yield from _parts(lengths, _MAX_ROWS * self._threads)

    def padded(self, length: int) -> int:
        """Return the length itself: texts of any lengths are packed without padding."""
        return length

    def run(self, texts: Sequence[Sequence[int]]) -> Float32:
        """Encode texts as vectors, (n, dimension) float32, of unit length unless the model has FIRST_AS_IS.

        A model with TOKENS gives the vectors of all tokens as they are, one text after the other.

        Args:
            texts: Token ids of n texts, at least one of each.
        """
        lengths = [len(text) for text in texts]
        ends = np.cumsum([0, *(lengths if self.gives_tokens else [1] * len(texts))])
        vectors = np.empty((ends[-1], self.dimension), dtype=np.float32)
        parts = list(_parts(lengths, min(_MAX_ROWS, -(-sum(lengths) // self._threads))))
        if len(parts) == 1:
            self._fill(texts, vectors)
            return vectors
        with ThreadPoolExecutor(self._threads) as pool:  # the kernel releases the lock of the interpreter

            def fill(part: range) -> None:
                self._fill(texts[part.start : part.stop], vectors[ends[part.start] : ends[part.stop]])

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


def _arguments(
    arrays: Arrays, precision: Precision
) -> tuple[int, int, int, int, int, int, int, int, float, list[NDArray[Any]]]:
    """Arrange the arrays for kernel.model, which checks their sizes."""
    words, places = arrays["words"], arrays["positions"]
    types = arrays.get("types", np.zeros_like(words[:1]))  # absent from models of one type
    heads, pooling = (int(number) for number in arrays["shape"])
    layers = sum(name.endswith(".norm1") for name in arrays)
    ordered: list[NDArray[Any]] = [_float32(part) for part in (words, places, types, arrays["norm"])]
    for layer in range(layers):
        for linear, norm in zip(LINEARS, ("", "norm1", "", "norm2"), strict=True):
            name = f"{layer}.{linear}"
            if arrays[f"{name}.weight"].dtype != _TYPES[precision]:
                raise ValueError("weights of another precision")
            ordered += _weights(arrays[f"{name}.weight"], arrays[f"{name}.bias"])
            if precision == "int8":
                ordered += [scale_panels(arrays[f"{name}.scale"]), _float32(arrays[f"{name}.smooth"])]
            if norm:
                ordered.append(_float32(arrays[f"{layer}.{norm}"]))
    inner = len(arrays["0.up.bias"])
    epsilon = float(arrays["epsilon"][0])
    sizes = len(words), len(types), len(places), words.shape[1], inner, heads, layers, pooling
    return *sizes, epsilon, ordered


def _weights(weight: NDArray[Any], bias: Float32) -> tuple[NDArray[Any], Float32]:
    """Arrange the weights of a product as kernel.c reads them: in panels of 48 outputs, four bytes of inputs together.

    Args:
        weight: (n, k), int8, uint16 or float32.
        bias: (n,).
    """
    outputs = len(weight)
    if bias.shape != (outputs,) or outputs < _PANEL:  # fewer outputs would take many times the memory of the file
        raise ValueError("weights and offsets do not fit together")
    if weight.dtype == np.int8 and (weight == np.iinfo(np.int8).min).any():
        raise ValueError("a weight of -128, on which the paths of kernel.c would disagree")
    if weight.dtype == np.uint16 and ((weight & 0x7FFF) - np.uint16(1) < (MIN_EXPONENT << 7) - 1).any():
        raise ValueError("weights so small that the paths of kernel.c would disagree")
    return panels(weight), _float32(np.pad(bias, (0, -outputs % _PANEL)))


def panels(weight: NDArray[Any]) -> NDArray[Any]:
    """Arrange (n, k) weights, int8, uint16 or float32, in panels; those in int8 become uint8, 128 being zero."""
    outputs, inputs = weight.shape
    zero, together = 0, 4 // weight.itemsize
    if weight.dtype == np.int8:
        weight, zero = weight.view(np.uint8) ^ np.uint8(128), 128
    padded = np.full((outputs + -outputs % _PANEL, inputs), zero, dtype=weight.dtype)
    padded[:outputs] = weight
    return np.ascontiguousarray(padded.reshape(-1, _PANEL, inputs // together, together).transpose(0, 2, 1, 3))


def scale_panels(scale: Float32) -> Float32:
    """Arrange the scales of weights in int8, (n, k / 64) float32, as kernel.c reads them: [n / 48][k / 64][48]."""
    outputs, blocks = scale.shape
    padded = np.zeros((outputs + -outputs % _PANEL, blocks), dtype=scale.dtype)
    padded[:outputs] = scale
    return _float32(padded.reshape(-1, _PANEL, blocks).transpose(0, 2, 1))


def _float32(array: NDArray[Any]) -> Float32:
    if array.dtype != np.float32:
        raise ValueError("a float32 array is needed")
    return np.require(array, requirements=("C", "A"))


class Graph:
    """A graph with the inputs input_ids and attention_mask, (batch, tokens) int64, and one float32 output.

    The output is (batch, d), or (batch, tokens, d) if the graph gives a vector per token. Texts of equal padded length
    share a batch, the padding depends on the text's own length, and if a graph computes other bits for a lone text, the
    text is paired with itself. So a vector depends on its text alone, to the last bit; on a GPU, to rounding.

    Attributes:
        dimension: d; None if the graph does not declare it.
    """

    packed = False

    def __init__(self, path: Path, threads: int, max_length: int, pad_multiple: int, *, pair_lone_texts: bool) -> None:
        """Load the graph.

        Args:
            pad_multiple: Texts are padded to a multiple of this many tokens, so that more texts share a batch.
            pair_lone_texts: Whether a text alone in its batch gets other last bits than in a larger batch.
        """
        self._session = load_session(path, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        width = self._session.get_outputs()[0].shape[-1]
        self.dimension = width if isinstance(width, int) else None
        self.on_gpu = uses_gpu(self._session)
        if not self._inputs <= {"input_ids", "attention_mask"}:
            raise EncoderError(f"{path}: has inputs other than input_ids and attention_mask")
        self._max_length, self._pad_multiple, self._pair_lone_texts = max_length, pad_multiple, pair_lone_texts

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions of texts of one padded length, shortest first."""
        # A batch has at most _BATCH_TOKENS tokens or two texts. A text of more tokens has its own.
        padded = [self.padded(length) for length in lengths]
        order = sorted(range(len(padded)), key=padded.__getitem__)
        for length, group in itertools.groupby(order, key=padded.__getitem__):
            size = 1 if length > _BATCH_TOKENS else max(2, _BATCH_TOKENS // max(1, length))
            while batch := list(itertools.islice(group, size)):
                yield batch

    def padded(self, length: int) -> int:
        """Return the padded length of a text of `length` tokens."""
        return max(length, min(-(-length // self._pad_multiple) * self._pad_multiple, self._max_length))

    def run(self, texts: Sequence[Sequence[int]], attended: Sequence[int] | None = None) -> Float32:
        """Encode the token ids of a batch of one padded length.

        Returns (n, d) float32, or (n, padded length, d) of a graph that gives a vector per token.

        Args:
            texts: Token ids of n texts.
            attended: Number of first tokens of each text that all its tokens attend to, by default all.
        """
        rows, length = len(texts), self.padded(len(texts[0]))
        paired = rows == 1 and self._pair_lone_texts and length <= _BATCH_TOKENS
        ids = np.zeros((2 if paired else rows, length), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row in range(len(ids)):
            text = texts[min(row, rows - 1)]
            ids[row, : len(text)] = text
            mask[row, : len(text) if attended is None else attended[min(row, rows - 1)]] = 1
        feed = {"input_ids": ids, "attention_mask": mask}
        output: Float32 = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        return output[:rows]


def load_session(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    """Load a graph that computes a batch with so many threads; raises EncoderError if onnxruntime cannot."""
    import onnxruntime  # slow to load, and only encoding needs it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads spin between the products of one text, but not until the next text.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 4  # fatal only: errors are exceptions, and the optimiser's remarks help no operator
    try:
        return new_session(path, options)
    except Exception as error:  # onnxruntime has one exception type per status code, without a common base
        raise EncoderError(f"{path}: onnxruntime cannot load this model") from error


class GraphWeights(BaseModel):
    """A BERT-like model in a graph."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    heads: int = Field(ge=1)
    first_token: bool  # whether the vector is that of the first token; else the mean of all
    first_position: int = Field(ge=0)  # row of the position embeddings for the first token: 2 for RoBERTa, else 0
    epsilon: float = Field(ge=0, le=1)
    # offset in bytes and shape of every float32 tensor in model.onnx, or in the file of its weights if it has one.
    # Matrices are (inputs, outputs)
    tensors: dict[str, tuple[int, ...]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read kernel.json."""
        return cls.model_validate_json(read_bounded(path, _MAX_BYTES))

    @property
    def layers(self) -> int:
        """Number of layers."""
        return sum(name.endswith(".query.weight") for name in self.tensors)

    def arrays(self, folder: Path) -> Arrays:
        """Return the arrays by the names of weights.safetensors, in float32."""
        tensor = self._reader(folder)

        def norm(name: str) -> Float32:
            return np.stack([tensor(f"{name}.weight"), tensor(f"{name}.bias")])

        with np.errstate(all="ignore"):  # vectors that are not finite are refused later
            positions = tensor("positions") + tensor("token_types")[0]
        arrays: dict[str, NDArray[Any]] = {
            "words": tensor("words"),
            "positions": positions[self.first_position :],
            "norm": norm("norm"),
            "shape": np.array([self.heads, self.first_token], dtype=np.int64),
            "epsilon": np.array([self.epsilon], dtype=np.float32),
        }
        for layer in range(self.layers):
            qkv = [f"{layer}.{name}" for name in ("query", "key", "value")]
            arrays[f"{layer}.qkv.weight"] = np.concatenate([tensor(f"{name}.weight").T for name in qkv])
            arrays[f"{layer}.qkv.bias"] = np.concatenate([tensor(f"{name}.bias") for name in qkv])
            for name in ("out", "up", "down"):
                arrays[f"{layer}.{name}.weight"] = tensor(f"{layer}.{name}.weight").T
                arrays[f"{layer}.{name}.bias"] = tensor(f"{layer}.{name}.bias")
            arrays |= {f"{layer}.{name}": norm(f"{layer}.{name}") for name in ("norm1", "norm2")}
        return arrays

    def types(self, folder: Path) -> Arrays:
        """Return the embeddings of token types less the first one, by the name "types"; parameters as for `arrays`."""
        types = self._reader(folder)("token_types")
        return {"types": types - types[0]}

    def _reader(self, folder: Path) -> Callable[[str], Float32]:
        """Return what reads a tensor by its name; raises ValueError or KeyError, see `arrays`."""
        path = folder / (DATA if (folder / DATA).is_file() else MODEL)
        stored = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)

        def tensor(name: str) -> Float32:
            offset, *shape = self.tensors[name]
            count = math.prod(shape)
            if offset < 0 or min(shape, default=0) < 1 or offset + 4 * count > len(stored):
                raise ValueError(f"{name} is beyond the end of {path.name}")
            return np.frombuffer(stored, np.float32, count, offset).reshape(shape)

        return tensor
