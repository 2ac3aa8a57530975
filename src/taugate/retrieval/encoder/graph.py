"""A model as a graph for onnxruntime, run on batches of one length, and its weights, which the kernel reads.

The float32 weights of a BERT-like graph, which the kernel reads in place: kernel.json says where they are in it. The
export writes the file beside model.onnx. The digest of the encoder does not cover it, because it adds nothing to the
graph: without it, or without AVX-512, onnxruntime runs the same model.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.release.encoder import DATA, MODEL
from taugate.retrieval.hardware import new_session, uses_gpu
from taugate.storage.files import read_bounded
from taugate.storage.tensors import Arrays

if TYPE_CHECKING:
    import onnxruntime


# Tokens per batch; no other size is measurably faster (benchmarks/results/encoder.md). A longer text has its own batch.
_BATCH_TOKENS = 1024

_MAX_BYTES = 1 << 20  # a hundred times what a model of 24 layers takes


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
