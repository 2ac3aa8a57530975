"""A BERT-like model in float32, and its weights in int8 and bfloat16 for retrieval/encoder/kernel.c."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.bert import BLOCK, FIRST_AS_IS, LINEARS, MEAN, MIN_EXPONENT, TOKENS
from taugate.storage.tensors import Arrays

_EXPONENT = 0.6  # α of SmoothQuant, chosen on queries of squad_v2_dev (benchmarks/results/encoder.md)
_STEPS = 8  # factors are powers of 2 ** (1 / 8), so that a processor's last bits do not change the release's digest


class Product(NamedTuple):
    """x·Wᵀ + b: `weight` (n, k) float32 and `bias` (n,)."""

    weight: Float32
    bias: Float32


@dataclass(frozen=True)
class BertLayer:
    """One layer: its products by the names of LINEARS, and two norms (2, hidden), factor and offset."""

    products: dict[str, Product]
    norm1: Float32
    norm2: Float32


@dataclass(frozen=True)
class Bert:
    """A BERT-like model in float32."""

    words: Float32  # (vocabulary, hidden)
    positions: Float32  # (positions, hidden), with the embedding of the first token type
    types: Float32  # (types, hidden), embeddings of token types less the first one
    norm: Float32  # (2, hidden)
    layers: tuple[BertLayer, ...]
    heads: int
    epsilon: float
    pooling: int

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        """Make a model of arrays in float32, named as in weights.safetensors."""

        def layer(number: int) -> BertLayer:
            parts = {
                name: Product(arrays[f"{number}.{name}.weight"], arrays[f"{number}.{name}.bias"]) for name in LINEARS
            }
            return BertLayer(parts, arrays[f"{number}.norm1"], arrays[f"{number}.norm2"])

        heads, pooling = (int(number) for number in arrays["shape"])
        return cls(
            words=arrays["words"],
            positions=arrays["positions"],
            types=arrays.get("types", np.zeros_like(arrays["words"][:1])),
            norm=arrays["norm"],
            layers=tuple(layer(number) for number in range(sum(name.endswith(".norm1") for name in arrays))),
            heads=heads,
            epsilon=float(arrays["epsilon"][0]),
            pooling=pooling,
        )

    def forward(self, ids: Sequence[int]) -> tuple[Float32, list[dict[str, Float32]]]:
        """Return the vector of a text, (hidden,), and the inputs of every product, (tokens, k), by layer.

        With TOKENS, the former are the vectors of its tokens, (tokens, hidden).
        """
        types, words = np.divmod(ids, len(self.words))
        x = _normalized(self.words[words] + self.positions[: len(ids)] + self.types[types], self.norm, self.epsilon)
        inputs: list[dict[str, Float32]] = []
        for layer in self.layers:
            read: dict[str, Float32] = {}

            def product(name: str, y: Float32, layer: BertLayer = layer, read: dict[str, Float32] = read) -> Float32:
                read[name] = y
                return y @ layer.products[name].weight.T + layer.products[name].bias

            mixed = self._attention(product("qkv", x))
            x = _normalized(x + product("out", mixed), layer.norm1, self.epsilon)
            up = product("up", x)
            gelu = (up * 0.5 * (1 + erf(up / np.sqrt(np.float32(2))))).astype(np.float32)
            x = _normalized(x + product("down", gelu), layer.norm2, self.epsilon)
            inputs.append(read)
        if self.pooling == TOKENS:
            return x, inputs
        vector = x.mean(axis=0) if self.pooling == MEAN else x[0]
        length = 1.0 if self.pooling == FIRST_AS_IS else max(float(np.linalg.norm(vector)), 1e-12)
        return vector / length, inputs

    def _attention(self, qkv: Float32) -> Float32:
        tokens, hidden = len(qkv), self.words.shape[1]
        q, k, v = qkv.reshape(tokens, 3, self.heads, hidden // self.heads).transpose(1, 2, 0, 3)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(hidden // self.heads))
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed: Float32 = (weights / weights.sum(axis=2, keepdims=True)) @ v
        return mixed.transpose(1, 0, 2).reshape(tokens, hidden)

    def in_int8(self, texts: Sequence[Sequence[int]]) -> Arrays:
        """Return the arrays of weights.safetensors in int8.

        Args:
            texts: Token ids of texts like those to be encoded, whose largest activations choose the factors.
        """
        largest: list[dict[str, Float32]] = [{} for _ in self.layers]
        for ids in texts:
            for most, inputs in zip(largest, self.forward(ids)[1], strict=True):
                for name, x in inputs.items():
                    most[name] = np.maximum(most.get(name, 0), np.abs(x).max(axis=0))
        return self._arrays(lambda layer, name, product: _quantized(product, largest[layer][name]))

    def in_bfloat16(self) -> Arrays:
        """Return the arrays of weights.safetensors in bfloat16, as the upper halves of float32 in uint16."""
        return self._arrays(lambda _layer, _name, product: {"weight": _halves(product.weight), "bias": product.bias})

    def _arrays(self, linear: Callable[[int, str, Product], Arrays]) -> Arrays:
        """Return the arrays of the model, with those of its products by the number of the layer and their name."""
        arrays: Arrays = {
            "words": self.words,
            "positions": self.positions,
            "norm": self.norm,
            "shape": np.array([self.heads, self.pooling], dtype=np.int64),
            "epsilon": np.array([self.epsilon], dtype=np.float32),
        }
        if len(self.types) > 1:
            arrays["types"] = self.types
        for number, layer in enumerate(self.layers):
            arrays |= {f"{number}.norm1": layer.norm1, f"{number}.norm2": layer.norm2}
            for name, product in layer.products.items():
                arrays |= {f"{number}.{name}.{key}": array for key, array in linear(number, name, product).items()}
        return arrays


def _normalized(x: Float32, norm: Float32, epsilon: float) -> Float32:
    centred: Float32 = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    normalized: Float32 = centred / np.sqrt(variance + np.float32(epsilon)) * norm[0] + norm[1]
    return normalized


def _quantized(product: Product, most: Float32) -> Arrays:
    """Move outliers into the weights, then round every block of BLOCK weights by its own scale.

    Args:
        product: The product, (n, k).
        most: (k,), largest magnitude of each input.
    """
    weights = np.abs(product.weight).max(axis=0)
    factors = np.maximum(most, 1e-5) ** _EXPONENT / np.maximum(weights, 1e-5) ** (1 - _EXPONENT)
    factors = np.exp2(np.round(np.log2(factors) * _STEPS) / _STEPS)
    blocks = (product.weight * factors).reshape(len(product.weight), -1, BLOCK)
    scale = np.abs(blocks).max(axis=2) / 127
    rounded = np.round(blocks / np.where(scale == 0, 1, scale)[..., None])
    return {
        "weight": rounded.astype(np.int8).reshape(product.weight.shape),
        "scale": scale.astype(np.float32),
        "bias": product.bias.astype(np.float32),
        "smooth": (1 / factors).astype(np.float32),
    }


def _halves(weight: Float32) -> NDArray[np.uint16]:
    """Round to bfloat16, to nearest and ties to even; tiny numbers become zero, as in kernel.c."""
    bits = np.ascontiguousarray(weight).view(np.uint32)
    halves = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where((halves & 0x7FFF) < MIN_EXPONENT << 7, np.uint16(0), halves)
