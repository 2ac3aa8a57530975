"""A BERT-like model: its folder, and its weights in int8 and bfloat16 for the kernel (retrieval/encoder/bert.py)."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.export.model_folder import ModelFolder, Prompts, declared_json
from taugate.errors import EncoderError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.bert import BLOCK, FIRST_AS_IS, LINEARS, MEAN, MIN_EXPONENT, TOKENS
from taugate.storage.tensors import Arrays, map_tensors

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
        from scipy.special import erf  # here, since every command line loads this module

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


if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("bert", "roberta", "xlm-roberta", "mpnet")
HEADS = "heads"  # the graph's constant with the shape of its heads, (…, …, number, width)
WORDS = "embeddings.word_embeddings.weight"
_WEIGHTS = "model.safetensors"
# Options of sentence-transformers that change what a text becomes, with the only value that the graph can have.
_USUAL = {"do_lower_case": False, "transformer_task": "feature-extraction", "truncate_dim": None, "is_decoder": False}
_USUAL |= {"position_embedding_type": "absolute", "hidden_act": "gelu"}
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_ACTIVATIONS = {"torch.nn.modules.activation.Tanh": "Tanh", "torch.nn.modules.linear.Identity": None}
_SENTENCE = "sentence_embedding"
# Options by which transformers' tokenizers of BERT and RoBERTa replace those of tokenizer.json.
_NORMALIZATION = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
_NORMALIZATION |= {"strip_accents": "strip_accents"}
_DECLARED = {
    "normalizer": ("BertNormalizer", _NORMALIZATION),
    "pre_tokenizer": ("ByteLevel", {"add_prefix_space": "add_prefix_space"}),
}
_AS_STORED = {"PreTrainedTokenizerFast", "TokenizersBackend"}  # classes of tokenizers that replace nothing


class NeedsPyTorchError(Exception):
    """The folder's graph cannot be written without PyTorch, for the reason in the message."""


@dataclass(frozen=True)
class BertFolder:
    """What a folder declares; its weights are read when they are used."""

    declared: ModelFolder
    name: str
    base: Path
    config: Any
    # Id of the padding token if positions are counted from the next number on; None if they start at 0
    padding: int | None
    pooling: str
    steps: tuple[tuple[Path, str | None], ...]  # folder and activation of each dense module after the pooling
    dimension: int
    max_length: int

    @classmethod
    def read(cls, declared: ModelFolder, name: str) -> Self:
        """Read the declarations."""
        folder = declared.folder
        paths = [str(module.get("path", "")) for module in declared_json(folder / "modules.json") or ()]
        base = folder / (paths[0] if paths else "")
        config, options = declared_json(base / "config.json"), _transformer_options(base)
        for reason in _reasons(declared, base, declared_json(folder / "config_sentence_transformers.json") | options):
            raise NeedsPyTorchError(reason)
        pooling, steps = _pooled(declared, paths)
        own = config.get("pad_token_id", 1)
        padding = {"bert": None, "mpnet": 1}.get(config["model_type"], own)  # transformers ignores an MPNet's own
        positions = int(config.get("max_position_embeddings", 512)) - (0 if padding is None else padding + 1)
        limit = declared_json(base / "tokenizer_config.json").get("model_max_length", positions)
        max_length = int(options.get("max_seq_length") or min(limit, positions))
        if max_length > positions:
            raise EncoderError(
                f"encoder {name!r}: declares a length of {max_length:,} tokens, but has only {positions:,} positions; "
                "correct max_seq_length in sentence_bert_config.json"
            )
        last = declared_json(steps[-1][0] / "config.json")["out_features"] if steps else config["hidden_size"]
        return cls(declared, name, base, config, padding, pooling, steps, int(last), max_length)

    @cached_property
    def weights(self) -> Arrays:
        """The weights, by their names in transformers without the prefix of the model."""
        index = declared_json(self.base / f"{_WEIGHTS}.index.json").get("weight_map", {})
        files = sorted({str(file) for file in index.values()}) or [_WEIGHTS]
        arrays = {name: array for file in files for name, array in self._tensors(self.base / file).items()}
        # The prefix is that of the task for which the model was saved, such as "bert." or "roberta.".
        prefix = next((name.removesuffix(WORDS) for name in arrays if name.endswith(WORDS)), "")
        return {_renamed(name.removeprefix(prefix)): array for name, array in arrays.items() if name.startswith(prefix)}

    def dense(self) -> Iterator[tuple[Arrays, str | None]]:
        """Yield the weights of the dense modules after the pooling, with the operator of ONNX that follows, if any."""
        for folder, activation in self.steps:
            yield self._tensors(folder / _WEIGHTS), activation

    def _tensors(self, path: Path) -> Arrays:
        try:
            return map_tensors(path)
        except ReleaseError as error:
            raise EncoderError(
                f"encoder {self.name!r}: {self.declared.folder} is not a sentence-transformers model ({path.name} "
                "cannot be read as safetensors)"
            ) from error

    def tokenizer(self) -> "Tokenizer":
        """Return the tokenizer, which truncates texts; raises EncoderError if it cannot be read."""
        from tokenizers import Tokenizer  # slow to load, and only an export needs it

        stored, declared = (declared_json(self.base / f"tokenizer{end}.json") for end in ("", "_config"))
        if declared.get("tokenizer_class") not in _AS_STORED:
            for part, (kind, options) in _DECLARED.items():
                if (stored.get(part) or {}).get("type") == kind:
                    stored[part] |= {own: declared[name] for name, own in options.items() if name in declared}
        try:
            tokenizer = Tokenizer.from_str(json.dumps(stored))
        except Exception as error:  # tokenizers raises bare Exception
            raise EncoderError(f"encoder {self.name!r}: its tokenizer.json cannot be read ({error})") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_length)
        return tokenizer

    @property
    def prompts(self) -> Prompts:
        """Prompts by name."""
        return declared_json(self.declared.folder / "config_sentence_transformers.json").get("prompts") or {}


def _transformer_options(base: Path) -> Any:  # noqa: ANN401 (a JSON object)
    """Return the options of the module Transformer, whose file older versions named by the architecture."""
    return next((declared_json(path) for path in sorted(base.glob("sentence_*_config.json"))), {})


def _reasons(declared: ModelFolder, base: Path, options: Any) -> Iterator[str]:  # noqa: ANN401 (a JSON object)
    """Yield why only PyTorch can export a folder, its modules after the first one aside."""
    config = declared_json(base / "config.json")
    kind = config.get("model_type")
    if declared.modules[:1] not in {(), ("Transformer",)}:
        yield f"its first module is a {declared.modules[0]}"
    if kind not in KINDS:
        yield f"its architecture is {kind or 'not declared'}, not {', '.join(KINDS)}"
    for option, value in _USUAL.items():
        if (given := (config | options).get(option, value)) != value:
            yield f"its {option} is {given}"
    if not (base / "tokenizer.json").exists():
        yield "it has no tokenizer.json"
    if not any((base / name).exists() for name in (_WEIGHTS, f"{_WEIGHTS}.index.json")):
        yield "its weights are not in safetensors files"


def _pooled(declared: ModelFolder, paths: list[str]) -> tuple[str, tuple[tuple[Path, str | None], ...]]:
    """Return the pooling, and the dense modules after it; raises NeedsPyTorchError if a module is no formula."""
    pooling = None if declared.modules else "mean"
    steps: list[tuple[Path, str | None]] = []
    for position, (kind, path) in enumerate(zip(declared.modules[1:], paths[1:], strict=True), start=1):
        options = declared_json(declared.folder / path / "config.json")
        read = {options.get(key) or _SENTENCE for key in ("module_input_name", "module_output_name")}
        last = position == len(declared.modules) - 1
        if kind == "Pooling" and pooling is None:
            pooling = _pooling(options)
        elif kind == "Dense" and pooling and options.get("activation_function") in _ACTIVATIONS and read == {_SENTENCE}:
            steps.append((declared.folder / path, _ACTIVATIONS[options["activation_function"]]))
        elif kind != "Dropout" and not (kind == "Normalize" and last and read == {_SENTENCE}):
            raise NeedsPyTorchError(f"its module {position} is a {kind} with options of its own, or in another place")
    if pooling is None:
        raise NeedsPyTorchError("it pools tokens neither by their mean nor by the first one")
    return pooling, tuple(steps)


def _pooling(options: Any) -> str | None:  # noqa: ANN401 (a JSON object)
    """Return "mean" or "cls"; None for another pooling, or one that leaves prompts out."""
    named = options.get("pooling_mode") or []
    modes = [named] if isinstance(named, str) else [*named]
    modes += [
        _POOLINGS.get(flag) for flag, value in options.items() if flag.startswith("pooling_mode_") and value is True
    ]
    (mode, *others) = modes or [None]
    return mode if mode in _POOLINGS.values() and not others and options.get("include_prompt", True) else None


def _renamed(name: str) -> str:
    """Return a name as today's transformers writes it; the first BERT models have those of TensorFlow."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
