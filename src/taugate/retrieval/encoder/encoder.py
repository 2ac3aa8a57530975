"""The encoder: texts to unit vectors, with the same files and code in calibration and service.

Its model is a graph for onnxruntime (graph.py), or BERT-like weights for the kernel (bert.py). If a graph is BERT-like,
the kernel runs it on a processor with AVX-512 (graph.py).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taugate.errors import EncoderError
from taugate.retrieval.encoder.bert import WEIGHTS, BertModel, Precision, processor_path
from taugate.retrieval.encoder.endpoint_record import EndpointRecord
from taugate.retrieval.encoder.graph import DATA, LAYOUT, MODEL, Graph
from taugate.retrieval.encoder.tokenizer import TOKENIZER, load_tokenizer
from taugate.retrieval.hardware import cuda_available, processors
from taugate.retrieval.vectors import MAX_DIMENSIONS, Float32, extended
from taugate.storage.files import sha256_files

if TYPE_CHECKING:
    from tokenizers import Encoding

CONFIG = "encoder.json"
Runtime = Literal["onnxruntime", "kernel", "endpoint", "none"]  # none: there are only vectors (loading.py)
_MODELS: dict[str, str] = {"onnxruntime": MODEL, "kernel": WEIGHTS}
GRAPH_FILES = (MODEL, TOKENIZER, CONFIG)  # of a float32 encoder, beside which DATA and LAYOUT may be
FILES = (*_MODELS.values(), DATA, LAYOUT, TOKENIZER, CONFIG)  # of any encoder; each has one model
Role = Literal["query", "document"]
Similarity = Literal["cosine", "dot"]
RequestedPrecision = Literal["auto", "float32", "bfloat16", "int8"]  # auto: the precision of the calibration

# Far beyond any real encoder, so that a forged file cannot claim all memory. The limit of tokens is what the tokenizer
# can count, because some encoders read texts of any length.
_MAX_TOKENS, _MAX_PADDING = (1 << 31) - 1, 1 << 10
_MAX_BYTES = {TOKENIZER: 256 << 20, CONFIG: 1 << 20}  # a vocabulary of 250,000 pieces takes 17 MB
# Share of its characters above which a text counts as unreadable: from about there, an answer is lost more often than
# found. Of the queries of SciFact and SQuAD that all-MiniLM-L6-v2 answers, it still answers 67 and 60 % with a share of
# .46, 55 and 52 % with .56, 39 and 40 % with .66, 17 and 21 % with .81 (docs/research/encoder.md).
UNREADABLE = 0.5
_REMEDY = "give another encoder, or remove this one from the cache"


class EncoderConfig(BaseModel):
    """The properties of an exported encoder that its graph and tokenizer do not contain.

    Attributes:
        name: Name of the source model.
        revision: Revision of the source model.
        runtime: Runtime of the graph.
        precision: Precision of the weights.
        dimension: Dimension of a vector, with the last coordinate that `extended` adds.
        max_length: Longest text in tokens, including special ones and the prompt.
        max_query_length: Longest query in tokens if that is less than `max_length`, else None.
        pooling: Method that combines token vectors.
        normalize: Whether vectors have unit length.
        max_norm: M of `extended`, if similarity is the inner product; None, and not written, for the cosine.
        query_prompt: Prefix of queries.
        document_prompt: Prefix of documents.
        special_tokens: Whether the tokenizer adds special tokens.
        pad_multiple: Texts are padded to a multiple of this many tokens, so that more texts share a batch.
        pair_lone_texts: Whether a text alone in its batch gets other last bits than in a larger batch.
        max_cosine_difference: Largest 1 − cosine between PyTorch and the graph over the texts checked at export; None,
            and not written, if PyTorch was not needed. Of an endpoint: largest difference of the cosine of two texts
            between two replies.
        stored_type: Type of the source's weights if they are not stored in float32, such as BF16; else None.
        assumed_pooling: Whether the source declares no pooling, so that the mean of all tokens was taken.
        endpoint: The endpoint that encodes if `runtime` is endpoint; else None, and not written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    runtime: Runtime = "onnxruntime"
    precision: Precision = "float32"
    dimension: int = Field(ge=1, le=MAX_DIMENSIONS)
    max_length: int = Field(ge=1, le=_MAX_TOKENS)
    max_query_length: int | None = Field(default=None, ge=1, le=_MAX_TOKENS, exclude_if=lambda value: value is None)
    pooling: str
    normalize: Literal[True] = True
    max_norm: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    query_prompt: str = ""
    document_prompt: str = ""
    special_tokens: bool = True
    pad_multiple: int = Field(default=1, ge=1, le=_MAX_PADDING)
    pair_lone_texts: bool = True
    max_cosine_difference: float | None = Field(default=None, exclude_if=lambda value: value is None)
    stored_type: str | None = Field(default=None, max_length=16, exclude_if=lambda value: value is None)
    assumed_pooling: bool = Field(default=False, exclude_if=lambda value: not value)
    endpoint: EndpointRecord | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def query_window(self) -> int:
        """The number of tokens read of a query."""
        return self.max_query_length or self.max_length

    @property
    def similarity(self) -> Similarity:
        """How queries and documents are compared."""
        return "cosine" if self.max_norm is None else "dot"

    @property
    def model_dimension(self) -> int:
        """Dimension of the model's own vectors, without the coordinate that `extended` adds."""
        return self.dimension if self.max_norm is None else self.dimension - 1

    def cached_as(self, role: Role) -> str:
        """Return what precedes a text in the key of its cached vector: the prompt, and the role if it matters."""
        prompt = self.query_prompt if role == "query" else self.document_prompt
        return prompt if self.max_norm is None else f"{role}\0{prompt}"


@dataclass(slots=True)
class Tokens:
    """One text as token ids.

    Attributes:
        ids: Token ids, at most the encoder's max_length.
        truncated: Whether the text was longer; of an endpoint, known only after `embed`.
        unread: Share of its characters that the encoder does not know, 0…1.
        role: What the text is, which matters only if similarity is the inner product.
    """

    ids: list[int]
    truncated: bool
    unread: float = 0.0
    role: Role = field(default="query", kw_only=True)

    @property
    def count(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    @property
    def unreadable(self) -> bool:
        """True if the encoder knows too little of the text to tell it from other texts."""
        return self.unread > UNREADABLE


class Encoder(Protocol):
    """Encodes texts as unit vectors in two steps: tokenize, then embed."""

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the token ids of texts of a role, queries or documents."""
        ...

    @property
    def packed(self) -> bool:
        """True if texts of several lengths share a batch without padding."""
        ...

    def padded(self, length: int) -> int:
        """Return the number of tokens at which a text of `length` tokens is encoded."""
        ...

    def embed(self, tokens: Sequence[Tokens]) -> Float32:
        """Return unit vectors, (n, d) float32, in the order of `tokens`."""
        ...

    def single_threaded(self) -> Self:
        """Return the same encoder on one thread."""
        ...


class ExportedEncoder:
    """An exported encoder, loaded from its folder. A vector depends only on its text, to the last bit.

    Attributes:
        folder: Folder of the model and the tokenizer.
        config: Configuration of the encoder.
        sha256: Digest of its files.

    Raises:
        EncoderError: If files and configuration do not match.
    """

    def __init__(self, folder: Path, config: EncoderConfig, sha256: str, threads: int) -> None:
        from taugate.retrieval.encoder.unread import UnreadCounter

        self.folder = folder
        self.config = config
        self.sha256 = sha256
        self._model = self._load_model(folder, threads)
        if self._model.dimension not in {None, config.model_dimension}:
            raise EncoderError(f"{folder}: the dimension of {_MODELS[config.runtime]} is not {CONFIG}'s; {_REMEDY}")
        self._tokenizer = load_tokenizer(folder, config.max_length, _REMEDY)
        self._unread = UnreadCounter(self._tokenizer)
        self._frames = {prompt: self._frame(prompt) for prompt in (config.query_prompt, config.document_prompt)}

    def _load_model(self, folder: Path, threads: int) -> Graph | BertModel:
        config = self.config
        if config.runtime == "kernel":
            return BertModel(folder / WEIGHTS, config.precision, threads)
        packed = (folder / LAYOUT).is_file() and processor_path("float32") is not None
        if packed and not cuda_available():
            return BertModel(folder / LAYOUT, "float32", threads)
        try:
            graph = Graph(
                folder / MODEL, threads, config.max_length, config.pad_multiple, pair_lone_texts=config.pair_lone_texts
            )
        except EncoderError as error:
            raise EncoderError(f"{error}; {_REMEDY}") from error
        return BertModel(folder / LAYOUT, "float32", threads) if packed and not graph.on_gpu else graph

    def single_threaded(self) -> Self:
        """Load the same encoder with one thread and the same bits, for callers that embed in several threads."""
        return type(self)(self.folder, self.config, self.sha256, threads=1)

    @property
    def multiplied_weights(self) -> int:
        """Number of weights that each token is multiplied by, of a float32 encoder: all but the embeddings of words."""
        paths = (self.folder / _MODELS[self.config.runtime], self.folder / DATA)
        weights = sum(path.stat().st_size for path in paths if path.is_file()) // 4
        return max(0, weights - self._tokenizer.get_vocab_size() * self.config.dimension)

    @classmethod
    def load(cls, folder: Path, threads: int | None = None) -> Self:
        """Load an exported encoder; `load_encoder` also reaches an endpoint.

        Args:
            folder: Folder of its files.
            threads: Number of threads for a batch, by default the processors that this process may use.

        Raises:
            EncoderError: If a file is missing or invalid.
        """
        config = read_config(folder)
        model = _MODELS.get(config.runtime, MODEL)
        if config.runtime not in _MODELS or not (folder / model).is_file():
            raise EncoderError(f"{folder}: {model} missing; {_REMEDY}")
        files = [name for name in (model, DATA, TOKENIZER, CONFIG) if name != DATA or (folder / DATA).is_file()]
        return cls(folder, config, sha256_files(folder, files), threads or processors())

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the token ids of texts, prefixed with the role's prompt."""
        prompt = self.config.query_prompt if role == "query" else self.config.document_prompt
        prompted = [prompt + text for text in texts] if prompt else list(texts)
        encodings = self._tokenizer.encode_batch(prompted, add_special_tokens=self.config.special_tokens)
        start, frame = len(prompt), self._frames[prompt]
        window = self.config.query_window if role == "query" else self.config.max_length
        return [
            Tokens(
                _first_tokens(encoding, window),
                bool(encoding.overflowing) or len(encoding.ids) > window,
                self._unread.share(text, encoding, start=start, frame=frame),
                role=role,
            )
            for text, encoding in zip(prompted, encodings, strict=True)
        ]

    def _frame(self, prompt: str) -> int:
        """Return the number of tokens of the prompt and of special tokens around a text."""
        return len(self._tokenizer.encode(prompt, add_special_tokens=self.config.special_tokens).ids)

    @property
    def max_piece(self) -> int:
        """Largest number of texts to encode before their vectors are cached."""
        return sys.maxsize

    def close(self) -> None:
        """Close connections; an encoder in this process has none."""

    @property
    def packed(self) -> bool:
        """True if texts of several lengths share a batch without padding."""
        return self._model.packed

    def padded(self, length: int) -> int:
        """Return the tokens that a text of `length` tokens takes in a batch."""
        return self._model.padded(length)

    def embed(self, tokens: Sequence[Tokens], progress: Callable[[int], object] | None = None) -> Float32:
        """Encode texts as unit vectors, (n, dimension) float32, in the order of `tokens`.

        A text without tokens has the zero vector, which is similar to nothing.

        Args:
            tokens: Tokens of n texts.
            progress: Called after every batch with the number of its texts.

        Raises:
            EncoderError: If an embedding contains NaN or infinity.
        """
        config = self.config
        vectors = np.zeros((len(tokens), config.model_dimension), dtype=np.float32)
        if progress is not None:
            progress(sum(not text_tokens.ids for text_tokens in tokens))
        readable = [position for position, text_tokens in enumerate(tokens) if text_tokens.ids]
        for chosen in self._model.batches([len(tokens[position].ids) for position in readable]):
            batch = [readable[place] for place in chosen]
            encoded = self._model.run([tokens[position].ids for position in batch])
            if encoded.shape != (len(batch), config.model_dimension):
                raise EncoderError(
                    f"{config.name}: gives vectors of shape {encoded.shape[1:]}, not {CONFIG}'s; {_REMEDY}"
                )
            vectors[batch] = encoded
            if progress is not None:
                progress(len(batch))
        if not np.isfinite(vectors).all():
            broken = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise EncoderError(
                f"{config.name}: text {broken} of this call has an embedding with NaN or infinity; {_REMEDY}"
            )
        if config.max_norm is None:
            return vectors
        documents = np.array([text.role == "document" for text in tokens], dtype=bool)
        return extended(vectors, documents=documents, max_norm=config.max_norm)

    def encode(self, texts: Sequence[str], role: Role) -> Float32:
        """Encode texts of a role, queries or documents, as unit vectors, (n, dimension) float32."""
        return self.embed(self.tokenize(texts, role))


def read_config(folder: Path) -> EncoderConfig:
    """Read the configuration in the folder of an exported encoder.

    Raises:
        EncoderError: If the configuration or the tokenizer is missing, too large or invalid.
    """
    _check_size(folder, CONFIG)
    try:
        config = EncoderConfig.model_validate_json((folder / CONFIG).read_bytes())
    except ValidationError as error:
        raise EncoderError(f"{folder / CONFIG}: {_first_message(error)}; {_REMEDY}") from error
    if config.runtime != "endpoint":
        _check_size(folder, TOKENIZER)
    return config


def _check_size(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise EncoderError(f"{folder}: {name} missing; {_REMEDY}")
    if (folder / name).stat().st_size > _MAX_BYTES[name]:
        raise EncoderError(f"{folder / name}: more than {_MAX_BYTES[name]} bytes; {_REMEDY}")


def _first_tokens(encoding: "Encoding", window: int) -> list[int]:
    """Return the ids of a text without its tokens beyond the window; the special tokens at its end are kept."""
    ids: list[int] = encoding.ids
    if len(ids) <= window:
        return ids
    from taugate.retrieval.encoder.unread import trailing  # loads tokenizers

    ending = trailing(encoding)
    return ids[: window - ending] + ids[len(ids) - ending :]


def _first_message(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
