"""Late interaction: compares the vectors of a query's tokens with those of the candidates' tokens.

The score is MaxSim (Khattab and Zaharia, "ColBERT", SIGIR 2020, eq. 3) divided by the number of the query's vectors, so
that one threshold fits queries of all lengths. The token vectors of an encoder that was not trained for it count by how
rare the token is in the documents. Vectors are those of sentence-transformers' MultiVectorEncoder, which also reads the
checkpoints of PyLate and of ColBERTv2.

A stored vector has one byte per component and one scale. The query is rounded to a byte per component, too, with a
scale for every 64, so that the kernel multiplies integers, with the same bits on all processors. Without the kernel,
NumPy multiplies the rounded numbers in float32.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from taugate.errors import EncoderError, ReleaseError, RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import RerankerScale
from taugate.release.encoder import DATA, MAX_DIMENSIONS, MODEL, TOKENIZER, WEIGHTS, Precision, Role
from taugate.release.layout import RERANKER_CONFIGS
from taugate.release.search_records import RerankerKind
from taugate.retrieval.encoder.bert import BLOCK, BertModel, Graph, kernel, kernel_path, panels, scale_panels
from taugate.retrieval.encoder.encoder import load_tokenizer
from taugate.retrieval.hardware import processors
from taugate.retrieval.index.top_k import Candidate
from taugate.retrieval.rerank.stage import Reranker, checked_scores, read_exported
from taugate.storage.tensors import Arrays, map_tensors, write_tensors

CONFIG = RERANKER_CONFIGS["late-interaction"]
FILES = (MODEL, DATA, WEIGHTS, TOKENIZER, CONFIG)  # one model; DATA only beside a graph with large weights
_MAX_TOKENS = 1 << 20
_PAD_MULTIPLE = 4  # as for encoders: more texts share a batch
_SHORTEST = 1e-12  # length by which a shorter vector is divided, as in PyTorch's normalize
_REMEDY = "export the late-interaction model again"

_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_TINY = np.finfo(np.float32).tiny  # in place of the largest component of a zero vector
_FASTEST = 0  # path of the kernel


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
        self.config, self.sha256 = read_exported(folder, TokenEncoderConfig, CONFIG, FILES, "late-interaction model")
        config = self.config
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


class CodedTokens(NamedTuple):
    """Vectors of tokens: codes (tokens, dimension) int8, of which each row has a step, (tokens,) float32."""

    codes: NDArray[np.int8]
    steps: Float32


def coded(vectors: Float32) -> CodedTokens:
    """Return codes and steps of vectors, (tokens, dimension) float32."""
    steps = np.maximum(np.abs(vectors).max(axis=1), _TINY) / np.float32(_MAX_CODE)
    return CodedTokens(np.rint(vectors / steps[:, None]).astype(np.int8), steps)


class StoredTokens(NamedTuple):
    """Vectors of the tokens of N documents: codes and steps as in `CodedTokens`, of all documents."""

    codes: NDArray[np.int8]  # (tokens, dimension) int8
    steps: Float32  # (tokens,) float32
    offsets: NDArray[np.int64]  # (N + 1,) int64; document i has the tokens from offsets[i] to offsets[i + 1]


def largest_products(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    """Return the largest product of every token of a query with the tokens of each document, (n, tokens) float32.

    Args:
        query: (tokens, dimension) float32.
        stored: The documents' tokens; every document has one.
        positions: (n,) int64 positions of the documents.
    """
    tokens, dimension = query.shape
    blocks = np.pad(query, ((0, 0), (0, -dimension % BLOCK))).reshape(-1, BLOCK)
    codes, steps = coded(blocks)
    compiled = kernel()
    if compiled is None or dimension % BLOCK:
        rounded = (codes * steps[:, None]).reshape(tokens, -1)[:, :dimension]
        return _by_numpy(rounded, stored, positions)
    weights, scales = panels(codes.reshape(tokens, dimension)), scale_panels(steps.reshape(tokens, -1))
    best = np.empty((len(positions), weights.size // dimension), dtype=np.float32)
    compiled.largest_products(dimension, weights, scales, *stored, positions, best, _FASTEST)
    return best[:, :tokens]


def _by_numpy(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    bounds = [slice(*stored.offsets[position : position + 2].tolist()) for position in positions.tolist()]
    codes = np.concatenate([stored.codes[rows] for rows in bounds], dtype=np.float32)
    steps = np.concatenate([stored.steps[rows] for rows in bounds])
    starts = np.cumsum([0, *(rows.stop - rows.start for rows in bounds[:-1])])
    largest: Float32 = np.maximum.reduceat(codes @ query.T * steps[:, None], starts, axis=0)
    return largest


class TokenVectors:
    """The token vectors of N documents, mapped from a file; only those of candidates are read.

    Attributes:
        weights: (vocabulary,) float32 weights of a query's tokens by their ids; None if all count the same.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        """Map the file. Raises ReleaseError if it does not hold token vectors of this dimension."""
        try:
            arrays = map_tensors(path)
            self._stored = StoredTokens(arrays["codes"], arrays["steps"], arrays["offsets"])
            self.weights: Float32 | None = arrays.get("weights")
        except KeyError as error:
            raise ReleaseError(f"{path}: has no token vectors; calibrate again") from error
        codes, steps, offsets = self._stored
        rows = len(steps)
        fits = (
            codes.dtype == np.int8
            and steps.dtype == np.float32
            and offsets.dtype == np.int64
            and codes.shape == (rows, dimension)
            and steps.ndim == offsets.ndim == 1
            and len(offsets) > 1
            and (offsets[0], offsets[-1]) == (0, rows)
            and bool((np.diff(offsets) > 0).all())
            and (self.weights is None or (self.weights.dtype == np.float32 and bool((self.weights > 0).all())))
        )
        if not fits:
            raise ReleaseError(f"{path}: does not hold vectors of {dimension} dimensions by document; calibrate again")

    def counts(self, positions: Sequence[int]) -> list[int]:
        """Return how many vectors each of some documents has."""
        return [len(self[position].steps) for position in positions]

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._stored.offsets) - 1

    def __getitem__(self, position: int) -> CodedTokens:
        """Return the vectors of the document at a position."""
        rows = slice(*self._stored.offsets[position : position + 2].tolist())
        return CodedTokens(self._stored.codes[rows], self._stored.steps[rows])

    @property
    def dimension(self) -> int:
        """Dimension of a vector."""
        return int(self._stored.codes.shape[1])

    def save(self, path: Path, positions: Iterable[int] | None = None) -> None:
        """Write the token vectors of some documents to a file, by default of all."""
        chosen = range(len(self)) if positions is None else positions
        write_token_vectors(path, (self[position] for position in chosen), self.weights)

    def similarities(self, query: EncodedTokens, positions: NDArray[np.int64]) -> Float32:
        """Return the weighted means of the largest similarities of a query's tokens, (n,) float32.

        Args:
            positions: (n,) int64 positions of the documents.
        """
        weights = np.ones(len(query.ids), np.float32) if self.weights is None else self.weights[query.ids]
        best = largest_products(query.vectors, self._stored, positions)
        return np.asarray(best @ (weights / weights.sum()), dtype=np.float32)


def write_token_vectors(path: Path, documents: Iterable[CodedTokens], weights: Float32 | None = None) -> None:
    """Write the token vectors of documents, which need not be in memory at the same time.

    Args:
        path: The file to write; two others beside it are written and removed.
        documents: Vectors of one document after the other, at least one each.
    """
    codes, steps, ends, dimension = path.with_suffix(".codes"), path.with_suffix(".steps"), [0], 0
    with codes.open("wb") as codes_file, steps.open("wb") as steps_file:
        for document in documents:
            codes_file.write(document.codes.data)
            steps_file.write(document.steps.data)
            ends.append(ends[-1] + len(document.steps))
            dimension = document.codes.shape[1]
    arrays: Arrays = {
        "codes": np.memmap(codes, np.int8, "r", shape=(ends[-1], dimension)),
        "steps": np.memmap(steps, np.float32, "r"),
        "offsets": np.array(ends, dtype=np.int64),
    }
    write_tensors(path, arrays if weights is None else arrays | {"weights": weights})
    codes.unlink()
    steps.unlink()


class LateInteraction:
    """Scores documents by their stored token vectors."""

    parallel = 1

    def __init__(self, encoder: TokenEncoder, vectors: TokenVectors) -> None:
        """Combine both; raises ReleaseError if the vectors have no weights for the tokens of a weighted encoder."""
        weights = None if vectors.weights is None else len(vectors.weights)
        if weights != (encoder.vocabulary if encoder.config.weighted else None):
            raise ReleaseError(f"{encoder.folder}: its tokens and their weights do not fit together; calibrate again")
        self.encoder, self.vectors = encoder, vectors

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """Score n documents, (n,) float32; see `Reranker`."""
        name = self.encoder.config.name
        if deadline is not None and time.monotonic() >= deadline:
            raise RerankerUnavailable(f"{name}: the deadline passed before the candidates were scored")
        if not len(positions):
            return np.empty(0, dtype=np.float32)
        try:
            (encoded,) = self.encoder.encode([query], "query")
        except EncoderError as error:
            raise RerankerUnavailable(str(error)) from error
        return checked_scores(self.vectors.similarities(encoded, positions), len(positions), name)

    def reading(self, candidates: Mapping[int, Candidate]) -> Self:
        """See `Reranker`; token vectors are in this process."""
        return self

    def forget(self) -> None:
        """Do nothing: every score is computed again."""

    def close(self) -> None:
        """Do nothing: files are unmapped with this object."""


def token_vectors_of(reranker: Reranker) -> TokenVectors | None:
    """Return the stored token vectors of late interaction; None of other kinds."""
    return reranker.vectors if isinstance(reranker, LateInteraction) else None
