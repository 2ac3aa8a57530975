"""Encodes a text as one vector per token, for late interaction (Khattab and Zaharia, "ColBERT", SIGIR 2020).

The files are those that `taugate.calibration.export.rerankers` writes. Vectors are those of sentence-transformers'
MultiVectorEncoder, which also reads the checkpoints of PyLate and of ColBERTv2.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import RerankerScale
from taugate.release.encoder import DATA, MAX_DIMENSIONS, MODEL, TOKENIZER, WEIGHTS, Precision, Role
from taugate.release.layout import RERANKER_CONFIGS
from taugate.release.search_records import RerankerKind
from taugate.retrieval.encoder.bert import BertModel, kernel_path
from taugate.retrieval.encoder.graph import Graph
from taugate.retrieval.encoder.tokenizer import load_tokenizer
from taugate.retrieval.hardware import processors
from taugate.storage.files import read_bounded, sha256_files

CONFIG = RERANKER_CONFIGS["late-interaction"]
FILES = (MODEL, DATA, WEIGHTS, TOKENIZER, CONFIG)  # one model; DATA only beside a graph with large weights
_MAX_CONFIG, _MAX_TOKENS = 1 << 20, 1 << 20
_PAD_MULTIPLE = 4  # as for encoders: more texts share a batch
_SHORTEST = 1e-12  # length by which a shorter vector is divided, as in PyTorch's normalize
_REMEDY = "export the late-interaction model again"


class Expansion(BaseModel):
    """Tokens that are appended to short queries, whose vectors count (ColBERT, section 3.2)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: int = Field(ge=0)  # id of the token, usually [MASK]
    length: int = Field(ge=1, le=_MAX_TOKENS)  # tokens of a query with them
    attended: bool  # whether the other tokens attend to them


class TokenEncoderConfig(BaseModel):
    """What graph and tokenizer of an exported model do not contain."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    dimension: int = Field(ge=1, le=MAX_DIMENSIONS)
    prompts: dict[Role, str]  # prefix of queries and of documents
    lengths: dict[Role, int]  # longest query and longest document in tokens, including special ones and the prompt
    # ids of tokens of queries and of documents whose vectors do not count, such as punctuation
    skipped: dict[Role, list[int]]
    expansion: Expansion | None  # tokens that are appended to queries; None if none are
    weighted: bool = False  # whether a query's tokens count by how rare they are in the documents
    first_stage_weight: float = Field(default=0.0, ge=0)  # weight of the first stage's score in the score that ranks
    # largest difference between the library's scores and the graph's over the texts of the export
    max_difference: float = Field(ge=0)
    # precision of the weights; float32 is a graph, anything cheaper is for the kernel
    precision: Precision = Field(default="float32", exclude_if=lambda value: value == "float32")

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        for values in (self.prompts, self.lengths, self.skipped):
            if {*values} != {"query", "document"}:
                raise ValueError("needs a value for queries and one for documents")
        if not all(1 <= length <= _MAX_TOKENS for length in self.lengths.values()):
            raise ValueError(f"needs lengths of 1 to {_MAX_TOKENS} tokens")
        if self.precision != "float32" and self.expansion is not None and not self.expansion.attended:
            raise ValueError("the kernel cannot leave out tokens of attention")
        return self


class EncodedTokens(NamedTuple):
    """The tokens of a text that count: (tokens, dimension) float32 vectors, and (tokens,) int64 ids."""

    vectors: Float32
    ids: NDArray[np.int64]


class TokenEncoder:
    """An exported model of token vectors, loaded from its folder."""

    kind: RerankerKind = "late-interaction"
    config_file = CONFIG
    kernel_needs = "whose tokens attend to all others, without a projection behind it"

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        """Load the files; `threads`: threads for a batch, by default the processors that this process may use."""
        self.folder = folder
        self.config = config = _read_config(folder)
        try:
            self.sha256 = sha256_files(folder, [name for name in FILES if (folder / name).is_file()])
        except OSError as error:
            raise EncoderError(f"{folder}: cannot be read ({error}); {_REMEDY}") from error
        self._tokenizers = {role: load_tokenizer(folder, length, _REMEDY) for role, length in config.lengths.items()}
        self._model = self._load_model(threads or processors())

    def _load_model(self, threads: int) -> Graph | BertModel:
        config, path = self.config, self.folder / WEIGHTS
        if not self.is_cheaper:
            longest = max(*config.lengths.values(), config.expansion.length if config.expansion else 0)
            return Graph(self.folder / MODEL, threads, longest, _PAD_MULTIPLE, pair_lone_texts=False)
        # Any processor can run it, as vectors are the same by every path of the kernel; without AVX2, it is slow.
        model = BertModel(path, config.precision, threads, kernel_path(config.precision))
        if not model.gives_tokens:
            raise EncoderError(f"{path}: does not give vectors of tokens; calibrate again")
        return model

    @property
    def is_cheaper(self) -> bool:
        """True if its precision is below float32."""
        return self.config.precision != "float32"

    def scale(self, scores: Float32) -> RerankerScale:
        """Return what its scores are: means of cosines."""
        return "similarity"

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        size: int = self._tokenizers["query"].get_vocab_size()
        return size

    def tokenize(self, texts: Sequence[str], role: Role) -> list[list[int]]:
        """Return the token ids of texts of a role, queries or documents, without those of an expansion."""
        prompted = [self.config.prompts[role] + text for text in texts]
        return [encoding.ids for encoding in self._tokenizers[role].encode_batch(prompted)]

    def encode(self, texts: Sequence[str], role: Role) -> list[EncodedTokens]:
        """Encode n texts of a role, queries or documents; a text of which no token counts has a zero vector."""
        config, expansion = self.config, self.config.expansion if role == "query" else None
        ids = self.tokenize(texts, role)
        attended = [len(text) for text in ids]
        if expansion is not None:
            ids = [text + [expansion.token] * (expansion.length - len(text)) for text in ids]
            attended = [len(text) for text in ids] if expansion.attended else attended
        nothing = EncodedTokens(np.zeros((1, config.dimension), np.float32), np.zeros(1, np.int64))
        encoded = [nothing] * len(ids)
        skipped = config.skipped[role]
        filled = [place for place, text in enumerate(ids) if text]
        for chosen in self._model.batches([len(ids[place]) for place in filled]):
            batch = [filled[place] for place in chosen]
            outputs = self._run([ids[place] for place in batch], [attended[place] for place in batch])
            for place, output in zip(batch, outputs, strict=True):
                tokens = output[: len(ids[place])]
                if tokens.shape[1:] != (config.dimension,) or not np.isfinite(tokens).all():
                    raise EncoderError(
                        f"{self.folder}: does not give finite vectors of {config.dimension} dimensions; {_REMEDY}"
                    )
                counted = ~np.isin(ids[place], skipped)
                if counted.any():
                    encoded[place] = EncodedTokens(tokens[counted], np.array(ids[place])[counted])
        return encoded

    def _run(self, texts: Sequence[Sequence[int]], attended: Sequence[int]) -> Iterable[Float32]:
        """Return the unit vectors of each text's tokens, and of padding behind them; parameters as for `Graph.run`."""
        if isinstance(self._model, Graph):
            return self._model.run(texts, attended)
        vectors = self._model.run(texts)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SHORTEST)
        return np.split(vectors, np.cumsum([len(text) for text in texts])[:-1])


def _read_config(folder: Path) -> TokenEncoderConfig:
    try:
        return TokenEncoderConfig.model_validate_json(read_bounded(folder / CONFIG, _MAX_CONFIG))
    except (OSError, ValidationError) as error:
        raise EncoderError(
            f"{folder / CONFIG}: not the configuration of a late-interaction model; {_REMEDY}"
        ) from error
