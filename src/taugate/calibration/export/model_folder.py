"""What a model's folder declares, read from its files before any weights are loaded.

sentence-transformers loads any folder: for one whose modules it cannot use, or that declares none, it takes the mean of
all tokens. So a ColBERT or SPLADE model would become an encoder that nobody trained. Such folders are refused here, and
models of late interaction are recognised for the second stage.
"""

import json
import os
import re
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Self, cast, get_args

import numpy as np

from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.release.encoder import CONFIG, EncoderConfig
from taugate.release.golden import TOLERANCE
from taugate.release.records import TrainedSimilarity
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.vectors import max_norm_above
from taugate.storage.files import Json

FIRST_MODULES = frozenset({"Transformer", "StaticEmbedding"})
LATER_MODULES = frozenset({"Pooling", "Dense", "Normalize", "Dropout"})
# Models for the dot product that were published before sentence-transformers recorded the similarity.
_NAMED_FOR_DOT = re.compile(r"(?:^|[-_/])(?:dot|contriever|tas-b)(?:[-_/]|$)", re.IGNORECASE)
_ROUTER = "Router"  # written by `taugate adapt --keep-documents`
_MANY_VECTORS = "gives several vectors per text (late interaction, such as ColBERT), which --rerank takes"
_COLBERT = "HF_ColBERT"  # architecture of ColBERT's own checkpoints
_SPARSE = "gives sparse vectors of words (such as SPLADE), but a release stores dense ones"
_PAIRS = "scores pairs of texts (a cross-encoder or classifier), and gives no vectors"
# `model_type` in config_sentence_transformers.json. PyLate writes ColBERT.
_MODEL_TYPES = {
    "MultiVectorEncoder": _MANY_VECTORS,
    "ColBERT": _MANY_VECTORS,
    "SparseEncoder": _SPARSE,
    "CrossEncoder": _PAIRS,
}
_MODULES = {
    "MultiVectorMask": _MANY_VECTORS,
    "SpladePooling": _SPARSE,
    "SparseAutoEncoder": _SPARSE,
    "SparseStaticEmbedding": _SPARSE,
    "LogitScore": _PAIRS,
}
# Names of models that were published as plain Hugging Face folders, and architectures in config.json.
_PLAIN = {
    re.compile(r"colbert", re.IGNORECASE): _MANY_VECTORS,
    re.compile(r"splade", re.IGNORECASE): _SPARSE,
    re.compile(r"ForSequenceClassification$"): _PAIRS,
}
_DENSE = "choose a dense sentence-transformers model"
# PyTorch and onnxruntime hold the weights at the same time while both are compared, and the exporter copies them once.
_COPIES = 3
_MAX_HEADER = 100 << 20  # bytes, the limit of the safetensors format


@dataclass(frozen=True)
class ModelFolder:
    """The declarations of a sentence-transformers or Hugging Face folder."""

    folder: Path
    # Class names of the modules, in order; empty for a Hugging Face folder, which declares none
    modules: tuple[str, ...]
    parameters: int  # number of weights in files of the format safetensors; 0 if there are none
    stored_type: str | None  # type in which most of these weights are stored, such as BF16; None without such files
    pools_prompt: bool  # whether the tokens of a prompt count in the pooling
    similarity: str | None  # declared name of a similarity function; None if none is declared

    @classmethod
    def read(cls, folder: Path, name: str) -> Self:
        """Read the declarations, and refuse a model that gives no single dense vector per text."""
        sentence_config = declared_json(folder / "config_sentence_transformers.json")
        declared = declared_json(folder / "modules.json")
        types = [str(module.get("type", "")) for module in declared] if isinstance(declared, list) else []
        kinds = tuple(kind.rsplit(".", 1)[-1] for kind in types)
        _refuse(name, _MODEL_TYPES.get(str(sentence_config.get("model_type"))))
        if str(sentence_config.get("similarity_fn_name")).lower().replace("_", "") in {"maxsim", "meanmaxsim"}:
            _refuse(name, _MANY_VECTORS)
        for kind in kinds:
            _refuse(name, _MODULES.get(kind))
        if not kinds:
            config = declared_json(folder / "config.json")
            for known, reason in _PLAIN.items():
                if any(known.search(text) for text in (name, *map(str, config.get("architectures") or ()))):
                    _refuse(name, reason)
        for kind in types:
            if not kind.startswith("sentence_transformers."):
                raise EncoderError(f"encoder {name!r}: {_custom_code(kind)}")
        if kinds and kinds[0] != _ROUTER:
            check_modules(kinds, name)
        weights = _stored_weights(folder)
        return cls(
            folder=folder,
            modules=kinds,
            parameters=sum(weights.values()),
            stored_type=max(weights, key=weights.__getitem__) if weights else None,
            pools_prompt=_pools_prompt(folder, declared if kinds else []),
            similarity=sentence_config.get("similarity_fn_name"),
        )

    @property
    def normalizes(self) -> bool:
        """True if the last module makes all lengths 1, so that every similarity ranks like the cosine."""
        return self.modules[-1:] == ("Normalize",)

    @property
    def declares_dot(self) -> bool:
        """True if the folder declares the dot product, and vectors have different lengths.

        A Router was learned by cosine, whatever its base declared.
        """
        return self.trained_for("") == "dot" and _ROUTER not in self.modules

    def trained_for(self, name: str) -> TrainedSimilarity | None:
        """Return the similarity that the model was trained for; None if cosine is equivalent, or it is unknown.

        Args:
            name: Name or path of the model, which may tell what the folder does not declare.
        """
        if self.normalizes:
            return None
        if self.similarity is None:
            return "dot" if _NAMED_FOR_DOT.search(name) else None
        names = get_args(TrainedSimilarity)
        return next((similarity for similarity in names if str(self.similarity).startswith(similarity)), None)

    def check_memory(self, name: str) -> None:
        """Check before the work that this machine has the memory to export the model."""
        needed = 4 * self.parameters * _COPIES
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
        if needed > available:
            raise EncoderError(
                f"encoder {name!r}: has {self.parameters / 1e9:.1f} billion weights, whose export takes about "
                f"{needed / 2**30:.0f} GiB of memory, and this machine has {available / 2**30:.0f}; choose a smaller "
                "model, or export it on a larger machine and give the encoder folder of that release"
            )


def gives_token_vectors(folder: Path) -> bool:
    """Return whether a folder declares a model of late interaction, of sentence-transformers, PyLate or ColBERT."""
    declared = declared_json(folder / "config_sentence_transformers.json").get("model_type")
    if declared is not None:
        return _MODEL_TYPES.get(str(declared)) == _MANY_VECTORS
    return _COLBERT in (declared_json(folder / "config.json").get("architectures") or ())


def check_modules(kinds: Collection[str], name: str) -> None:
    """Raise EncoderError, naming the module, if a module of these kinds cannot be exported."""
    for position, kind in enumerate(kinds):
        supported = LATER_MODULES if position else FIRST_MODULES
        if kind not in supported:
            raise EncoderError(
                f"encoder {name!r}: module {position} is a {kind}, which cannot be exported (supported: "
                f"{', '.join(sorted(supported))}); choose a model made of those"
            )


def custom_code(error: Exception) -> str | None:
    """Return what to say if a model was not loaded because it needs its own Python code; None for another error."""
    return _custom_code("the folder") if "trust_remote_code" in str(error) else None


def _custom_code(source: str) -> str:
    return (
        f"needs Python code of its own ({source}), which Taugate does not run; choose a model whose architecture is "
        "part of transformers"
    )


def _refuse(name: str, reason: str | None) -> None:
    if reason is not None:
        raise EncoderError(f"encoder {name!r}: {reason}; {_DENSE}")


def _pools_prompt(folder: Path, modules: list[dict[str, Json]]) -> bool:
    paths = (str(module.get("path", "")) for module in modules if str(module.get("type")).endswith("Pooling"))
    return all(declared_json(folder / path / "config.json").get("include_prompt", True) for path in paths)


def declared_json(path: Path) -> Any:  # noqa: ANN401 (any JSON value)
    """Return the content of a JSON file; an empty object if it is missing or damaged, which loading will report."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}


def _stored_weights(folder: Path) -> Counter[str]:
    """Count the weights in all safetensors files of a folder by the type in which they are stored."""
    counts: Counter[str] = Counter()
    for path in folder.rglob("*.safetensors"):
        for tensor in _header(path).values():
            if isinstance(tensor, dict) and "shape" in tensor:
                counts[str(tensor.get("dtype"))] += prod(cast("list[int]", tensor["shape"]))
    return counts


def _header(path: Path) -> dict[str, Json]:
    """Return the header of a safetensors file, which starts with its length; empty if the file is damaged."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length <= _MAX_HEADER else {}
    except (OSError, ValueError, struct.error):
        return {}
    return header if isinstance(header, dict) else {}


Prompts = Mapping[str, str | None]  # by name; sentence-transformers adds empty ones
_SENTENCE = "The threshold of a retrieval system decides which of the passages it has found are worth reading. "
PROBES = [
    "?",
    "threshold",
    "What is the warranty period for a new roof?",
    "cosine similarity of two unit vectors",
    "Who pays when a contractor goes bankrupt before the house is finished, and which documents prove it?",
    "def keep(scores, tau):\n    return [score for score in scores if score >= tau]",
    "HIV-1 mother-to-child transmission; DC-SIGNR p.Arg198Gln, n = 197, 95 % CI 1.2–3.4",
    "Vad kostar en bergvärmepump för en villa på 150 kvadratmeter?",
    "¿Cuándo empezó la crisis del petróleo?",
    "Какая температура кипения воды?",
    "検索の閾値はどのように決めますか。",
    "ما هي عتبة التشابه؟",
    "naïve café — “quoted” … 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🙂",
    *(_SENTENCE * repeats for repeats in (1, 2, 4, 8, 16, 64)),
]
_PASSAGE = 70  # characters; means of fewer tokens are often longer vectors
# The graph must not change a similarity by more than a golden query may differ: |Δs| ≤ |Δv| = √(2(1 − cos)).
MAX_COSINE_DIFFERENCE = TOLERANCE**2 / 2

# With padding, more queries share a batch, so several are encoded 4 to 9 % faster; a single query is as fast as before
# (benchmarks/results/encoder.md).
_PAD_MULTIPLE = 4


def config_of(
    declared: ModelFolder, name: str, revision: str, measures: tuple[int, int, str], prompts: Prompts
) -> EncoderConfig:
    """Return the configuration of an exported transformer before it is checked."""
    dimension, max_length, pooling = measures
    return EncoderConfig(
        name=name,
        revision=revision,
        dimension=dimension,
        max_length=max_length,
        pooling=pooling,
        query_prompt=prompt_of(prompts, "query"),
        document_prompt=prompt_of(prompts, "document", "passage", "corpus"),
        pad_multiple=_PAD_MULTIPLE,
        pair_lone_texts=False,
        stored_type=None if declared.stored_type == "F32" else declared.stored_type,
        assumed_pooling=not declared.modules,  # then the mean of the tokens is taken
    )


def prompt_of(prompts: Prompts, *names: str) -> str:
    """Return the first prompt with these names that is not empty."""
    return next((prompt for name in names if (prompt := prompts.get(name))), "")


def max_norm_of(documents: Float32) -> float:
    """Return M for inner products with documents like the probes that are passages, of whose vectors it is given."""
    passages = [len(probe) >= _PASSAGE for probe in PROBES]
    return max_norm_above(float(np.linalg.norm(documents[passages], axis=1).max()))


def largest_distance(first: Float32, second: Float32) -> float:
    """Return the largest ½|a − b|² over pairs of rows of two (n, d) arrays.

    It is 1 − cosine for unit vectors, exact for small angles, and 0 for two zero vectors.
    """
    return float(((first.astype(np.float64) - second) ** 2).sum(axis=1).max()) / 2


def checked_difference(difference: float, name: str) -> float:
    """Return the largest 1 − cosine between the graph and PyTorch on the probes."""
    if not difference <= MAX_COSINE_DIFFERENCE:
        raise EncoderError(
            f"encoder {name!r}: the exported graph and PyTorch differ by 1 − cosine = {difference:.2g} on the probe "
            f"texts, more than {MAX_COSINE_DIFFERENCE:.2g}; this model cannot be served; choose another one"
        )
    return difference


def depends_on_company(encoder: ExportedEncoder) -> bool:
    """Return whether a text encoded alone gets other bits than the same text in a batch."""
    pairs = encoder.encode([probe for probe in PROBES for _ in range(2)], "document")[::2]
    alone = np.concatenate([encoder.encode([probe], "document") for probe in PROBES])
    return not np.array_equal(pairs, alone)


def write_config(config: EncoderConfig, target: Path) -> None:
    """Write encoder.json into the encoder's folder `target`."""
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
