"""The float32 weights of a BERT-like graph, which the kernel reads in place: kernel.json says where they are in it.

The export writes the file beside model.onnx. The digest of the encoder does not cover it, because it adds nothing to
the graph: without it, or without AVX-512, onnxruntime runs the same model.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from taugate.retrieval.encoder.graph import DATA, MODEL
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import read_bounded
from taugate.storage.tensors import Arrays

LAYOUT = "kernel.json"
_MAX_BYTES = 1 << 20  # a hundred times what a model of 24 layers takes


class GraphWeights(BaseModel):
    """A BERT-like model in a graph.

    Attributes:
        heads: Number of attention heads.
        first_token: Whether the vector is that of the first token; else the mean of all.
        first_position: Row of the position embeddings for the first token: 2 for RoBERTa, else 0.
        epsilon: Added to variances.
        tensors: Offset in bytes and shape of every float32 tensor in model.onnx, or in the file of its weights if it
            has one. Matrices are (inputs, outputs).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    heads: int = Field(ge=1)
    first_token: bool
    first_position: int = Field(ge=0)
    epsilon: float = Field(ge=0, le=1)
    tensors: dict[str, tuple[int, ...]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read kernel.json.

        Raises:
            ValueError: If it is not such a file.
            OSError: If it cannot be read.
        """
        return cls.model_validate_json(read_bounded(path, _MAX_BYTES))

    @property
    def layers(self) -> int:
        """Number of layers."""
        return sum(name.endswith(".query.weight") for name in self.tensors)

    def arrays(self, folder: Path) -> Arrays:
        """Return the arrays by the names of weights.safetensors, in float32.

        Args:
            folder: Folder of model.onnx.

        Raises:
            ValueError: If a tensor is beyond the end of the file, or tensors do not fit each other.
            KeyError: If one is missing.
        """
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
