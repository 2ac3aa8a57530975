"""The encoder: texts to unit vectors, with the same files and code in calibration and service.

Texts of which an encoder cannot read most, because its tokenizer drops it or replaces it by the unknown token, look
alike to it, so their similarities are meaningless. A tokenizer with a byte fallback has tokens for every text.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from pydantic import ValidationError

from taugate.errors import EncoderError, InputError
from taugate.policy.arrays import Float32
from taugate.release.encoder import (
    CONFIG,
    DATA,
    LAYOUT,
    MODEL,
    TOKENIZER,
    WEIGHTS,
    Dialect,
    EncoderConfig,
    EndpointRecord,
    Role,
)
from taugate.retrieval.encoder.bert import BertModel, Graph, processor_path
from taugate.retrieval.hardware import cuda_available, processors
from taugate.retrieval.vectors import extended
from taugate.storage.files import read_secret, sha256_files
from taugate.storage.json_endpoint import url_and_key_file

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


_MODELS: dict[str, str] = {"onnxruntime": MODEL, "kernel": WEIGHTS}
GRAPH_FILES = (MODEL, TOKENIZER, CONFIG)  # of a float32 encoder, beside which DATA and LAYOUT may be
RequestedPrecision = Literal["auto", "float32", "bfloat16", "int8"]  # auto: the precision of the calibration

_MAX_BYTES = {TOKENIZER: 256 << 20, CONFIG: 1 << 20}  # a vocabulary of 250,000 pieces takes 17 MB
# Share of its characters above which a text counts as unreadable: from about there, an answer is lost more often than
# found. Of the queries of SciFact and SQuAD that all-MiniLM-L6-v2 answers, it still answers 67 and 60 % with a share of
# .46, 55 and 52 % with .56, 39 and 40 % with .66, 17 and 21 % with .81 (benchmarks/decisions.md).
UNREADABLE = 0.5
_REMEDY = "give another encoder, or remove this one from the cache"

_CONTROL = {"Cc", "Cf", "Cs"}
_UNKNOWN_OF_UNIGRAM = re.compile(r'"unk_id"\s*:\s*(\d+)')  # its class in Python does not tell

URL, KEY_FILE = "TAUGATE_ENCODER_URL", "TAUGATE_ENCODER_KEY_FILE"
PATHS: dict[Dialect, str] = {"openai": "/embeddings", "tei": "/embed"}


@dataclass(slots=True)
class Tokens:
    """One text as token ids."""

    ids: list[int]  # token ids, at most the encoder's max_length
    truncated: bool  # whether the text was longer; of an endpoint, known only after `embed`
    unread: float = 0.0  # share of its characters that the encoder does not know, 0…1
    # what the text is, which matters only if similarity is the inner product
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

    Raises:
        EncoderError: If files and configuration do not match.
    """

    def __init__(self, folder: Path, config: EncoderConfig, sha256: str, threads: int) -> None:
        self.folder = folder
        self.config = config
        self.sha256 = sha256
        self._model = self._load_model(folder, threads)
        if self._model.dimension not in {None, config.model_dimension}:
            raise EncoderError(f"{folder}: the dimension of {_MODELS[config.runtime]} is not {CONFIG}'s; {_REMEDY}")
        self._tokenizer = load_tokenizer(folder, config.max_length, _REMEDY)
        self._unread = UnreadCounter(self._tokenizer)
        # Number of tokens of a prompt and of special tokens around a text.
        prompts = (config.query_prompt, config.document_prompt)
        encoded = self._tokenizer.encode_batch(prompts, add_special_tokens=config.special_tokens)
        self._frames = {prompt: len(encoding.ids) for prompt, encoding in zip(prompts, encoded, strict=True)}

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
        """Load an exported encoder; `load_encoder` also reaches an endpoint."""
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
        """Encode texts as unit vectors, (n, dimension) float32, in the order of `tokens`."""
        # A text without tokens has the zero vector, which is similar to nothing.
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


class EncoderElsewhere(ExportedEncoder):
    """An encoder that computes nothing in this process, so that no batch is padded here."""

    packed = True
    multiplied_weights = 0

    def single_threaded(self) -> Self:
        """Return the encoder itself."""
        return self

    def padded(self, length: int) -> int:
        """Return `length`."""
        return length


def read_config(folder: Path) -> EncoderConfig:
    """Read the configuration in the folder of an exported encoder."""
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
    ending = trailing(encoding)
    return ids[: window - ending] + ids[len(ids) - ending :]


def _first_message(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"


class UnreadCounter:
    """Counts the characters of texts that a tokenizer does not read."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._unknown = _unknown_id(tokenizer)

    def share(self, text: str, encoding: "Encoding", *, start: int = 0, frame: int = 0) -> float:
        """Return the share of the characters of a text, 0…1, that the encoder does not read.

        Spaces, marks, invisible characters and the truncated part do not count. If every token is known, this only
        scans the token ids.

        Args:
            start: Start of the text after a prompt, in characters.
            frame: Number of tokens that belong to the prompt or are special.
        """
        ids = encoding.ids
        if len(ids) > frame and self._unknown not in ids:
            return 0.0
        end = encoding.offsets[-1 - trailing(encoding)][1] if encoding.overflowing else len(text)
        total = sum(map(_counts, text[start:end]))
        read = sum(sum(map(_counts, part)) for part in self._read_parts(text, encoding, start))
        return 1 - min(read, total) / total if total else 1.0

    def _read_parts(self, text: str, encoding: "Encoding", start: int) -> Iterator[str]:
        """Yield the parts of a text that known tokens represent; several tokens may represent one character."""
        done = start
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if token != self._unknown and last > done:
                yield text[max(first, done) : last]
            done = max(done, last)


def trailing(encoding: "Encoding") -> int:
    """Return the number of special tokens after the text's own tokens."""
    mask = encoding.special_tokens_mask
    return next((place for place, special in enumerate(reversed(mask)) if not special), 0)


@lru_cache(1 << 14)  # a megabyte; texts of a language have some hundred characters, or some thousand
def _counts(character: str) -> bool:
    """Return whether a character counts: no separator, mark or control character, which tokenizers may drop."""
    category = unicodedata.category(character)
    return category[0] not in "ZM" and category not in _CONTROL


def _unknown_id(tokenizer: "Tokenizer") -> int | None:
    """Return the id of the unknown token, None if the tokenizer has none."""
    from tokenizers.models import Unigram  # slow to load, and only encoding needs it

    model = tokenizer.model
    if isinstance(model, Unigram):
        match = _UNKNOWN_OF_UNIGRAM.search(tokenizer.to_str())
        return int(match[1]) if match else None
    name = getattr(model, "unk_token", None)
    return None if name is None else tokenizer.token_to_id(name)


def load_tokenizer(folder: Path, max_length: int, remedy: str) -> "Tokenizer":
    """Load a tokenizer that does not pad, and truncates the longer text of a pair first."""
    from tokenizers import Tokenizer  # slow to load, and only encoding needs it

    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length)  # of a pair, tokens of the longer text: `longest_first` is the default
    except Exception as error:  # tokenizers raises bare Exception for an unreadable file
        raise EncoderError(f"{folder / TOKENIZER}: not a tokenizer.json; {remedy}") from error
    return tokenizer


@dataclass(frozen=True)
class EndpointAccess:
    """How this process reaches the endpoint of an encoder."""

    url: str | None = None  # base URL that replaces that of the release, for another network or a copy of the server
    key_file: Path | None = None  # file with the key; None if the endpoint needs none
    seconds: float | None = None  # limit of a request whose caller cannot wait; None for a job, which waits and retries

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the access of a job, as the environment says."""
        url, key_file = url_and_key_file(environ, URL, KEY_FILE)
        return cls(url or None, key_file)

    def key(self, record: EndpointRecord) -> str | None:
        """Read the key. Raises InputError if the file cannot be read, or no URL is set."""
        # A release may come from elsewhere, so the key is never sent to a URL that only the release names.
        if self.key_file is None:
            return None
        if self.url is None:
            raise InputError(
                f"{KEY_FILE}: a key is sent only to a URL that you name, not to any that a release names; set "
                f"{URL}={record.url}, or another URL of this encoder"
            )
        return read_secret(self.key_file, KEY_FILE) or None
