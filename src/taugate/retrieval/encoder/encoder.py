"""The encoder: texts to unit vectors with onnxruntime, by the same bytes and code at calibration and in the service."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import onnxruntime
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from taugate.errors import EncoderError
from taugate.retrieval.encoder.processors import processors
from taugate.retrieval.encoder.unread import UNREADABLE, UnreadCounter
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import sha256_files

MODEL, TOKENIZER, CONFIG = "model.onnx", "tokenizer.json", "encoder.json"
FILES = (MODEL, TOKENIZER, CONFIG)
Role = Literal["query", "document"]
RequestedPrecision = Literal["auto", "float32", "int8"]  # auto: that of the calibration

# Tokens a batch: no other size is faster by more than the noise (docs/benchmarks/encoder.md).
_BATCH_TOKENS = 1024
# Far beyond any encoder that there is, so that a forged file cannot ask for all memory. Tokens are as many as the
# tokenizer can count: some encoders read texts of any length.
_MAX_DIMENSIONS, _MAX_TOKENS, _MAX_PADDING = 1 << 16, (1 << 31) - 1, 1 << 10
_MAX_BYTES = {TOKENIZER: 256 << 20, CONFIG: 1 << 20}  # a vocabulary of 250,000 pieces takes 17 MB
_REMEDY = "give another encoder, or remove this one from the cache"


class EncoderConfig(BaseModel):
    """Everything about an exported encoder that its graph and tokenizer do not say themselves.

    Attributes:
        name: Of the model that it was exported from.
        revision: Of the model that it was exported from.
        runtime: What runs the graph.
        precision: Of the weights.
        dimension: Of a vector.
        max_length: Of a text in tokens, special ones included.
        pooling: How token vectors become one.
        normalize: Vectors have unit length.
        query_prompt: Put in front of each text.
        document_prompt: Put in front of each text.
        special_tokens: Whether the tokenizer adds them.
        pad_multiple: Texts are padded to a multiple of so many tokens, so that more of them share a batch.
        pair_lone_texts: Whether the graph gives a text alone in its batch other last bits than in company.
        max_cosine_difference: The largest 1 − cosine between PyTorch and the graph over the texts that the export was
            checked on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    runtime: Literal["onnxruntime"] = "onnxruntime"
    precision: Literal["float32", "int8"] = "float32"
    dimension: int = Field(ge=1, le=_MAX_DIMENSIONS)
    max_length: int = Field(ge=1, le=_MAX_TOKENS)
    pooling: str
    normalize: Literal[True] = True
    query_prompt: str = ""
    document_prompt: str = ""
    special_tokens: bool = True
    pad_multiple: int = Field(default=1, ge=1, le=_MAX_PADDING)
    pair_lone_texts: bool = True
    max_cosine_difference: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as token ids.

    Attributes:
        ids: At most the encoder's max_length.
        truncated: Whether the text was longer, and was cut off.
        unread: The share of its characters that the encoder does not know, 0…1.
    """

    ids: list[int]
    truncated: bool
    unread: float = 0.0

    @property
    def unreadable(self) -> bool:
        """True if the encoder knows so little of the text that it cannot tell it from others."""
        return self.unread > UNREADABLE


class OnnxEncoder:
    """An exported encoder, loaded from its folder.

    A vector depends on its text alone, to the last bit: texts of equal length share a batch, each padded by as much as
    its own length says, and where a graph gives a lone text other bits, it is run beside itself.

    Attributes:
        folder: With the graph and the tokenizer.
        config: Of the encoder.
        sha256: One digest of its files.
        threads: That one batch is run on.

    Raises:
        EncoderError: Where files and config do not fit each other.
    """

    def __init__(self, folder: Path, config: EncoderConfig, sha256: str, threads: int) -> None:
        self.folder = folder
        self.config = config
        self.sha256 = sha256
        self._session = _session(folder / MODEL, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        width = self._session.get_outputs()[0].shape[-1]
        known_inputs = self._inputs <= {"input_ids", "attention_mask"}
        if not known_inputs or (isinstance(width, int) and width != config.dimension):
            raise EncoderError(f"{folder / MODEL}: inputs or dimension are not those of {CONFIG}; {_REMEDY}")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(config.max_length)
        except Exception as error:  # tokenizers raises bare Exception for a file it cannot read
            raise EncoderError(f"{folder / TOKENIZER}: not a tokenizer.json; {_REMEDY}") from error
        self._unread = UnreadCounter(self._tokenizer)
        self._frames = {prompt: self._frame(prompt) for prompt in (config.query_prompt, config.document_prompt)}

    def single_threaded(self) -> Self:
        """Load the same encoder on one thread, with the same bits, for callers who embed in several threads at once."""
        return type(self)(self.folder, self.config, self.sha256, threads=1)

    @classmethod
    def load(cls, folder: Path, threads: int | None = None) -> Self:
        """Load an exported encoder.

        Args:
            folder: With its files.
            threads: That one batch is run on, by default the processors this process may use.

        Raises:
            EncoderError: Where a file is missing or is not what its name says.
        """
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise EncoderError(f"{folder}: {', '.join(missing)} missing; {_REMEDY}")
        for name, most in _MAX_BYTES.items():
            if (folder / name).stat().st_size > most:
                raise EncoderError(f"{folder / name}: more than {most} bytes; {_REMEDY}")
        try:
            config = EncoderConfig.model_validate_json((folder / CONFIG).read_bytes())
        except ValidationError as error:
            raise EncoderError(f"{folder / CONFIG}: {_first_message(error)}; {_REMEDY}") from error
        return cls(folder, config, sha256_files(folder, FILES), threads or processors())

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the token ids of texts, with the role's prompt in front of each."""
        prompt = self.config.query_prompt if role == "query" else self.config.document_prompt
        prompted = [prompt + text for text in texts] if prompt else list(texts)
        encodings = self._tokenizer.encode_batch(prompted, add_special_tokens=self.config.special_tokens)
        start, frame = len(prompt), self._frames[prompt]
        return [
            Tokens(
                encoding.ids,
                bool(encoding.overflowing),
                self._unread.share(text, encoding, start=start, frame=frame),
            )
            for text, encoding in zip(prompted, encodings, strict=True)
        ]

    def _frame(self, prompt: str) -> int:
        """Return how many tokens stand around a text: those of the prompt, and special ones."""
        return len(self._tokenizer.encode(prompt, add_special_tokens=self.config.special_tokens).ids)

    def padded(self, length: int) -> int:
        """Return the number of tokens at which a text of `length` tokens is encoded; equal ones share a batch."""
        multiple = self.config.pad_multiple
        return max(length, min(-(-length // multiple) * multiple, self.config.max_length))

    def embed(self, tokens: Sequence[Tokens], progress: Callable[[int], object] | None = None) -> Float32:
        """Encode texts as unit vectors, (n, dimension) float32, in the order of `tokens`.

        A text without a single token has the zero vector, which is similar to nothing.

        Args:
            tokens: Of n texts.
            progress: Called after each batch with the number of its texts.

        Raises:
            EncoderError: On NaN or infinity.
        """
        vectors = np.zeros((len(tokens), self.config.dimension), dtype=np.float32)
        lengths = [self.padded(len(each.ids)) for each in tokens]
        for batch in _equal_length_batches(lengths):
            if lengths[batch[0]]:
                vectors[batch] = self._run([tokens[position].ids for position in batch], lengths[batch[0]])
            if progress is not None:
                progress(len(batch))
        if not np.isfinite(vectors).all():
            broken = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise EncoderError(
                f"{self.config.name}: text {broken} of this call has an embedding with NaN or infinity; {_REMEDY}"
            )
        return vectors

    def encode(self, texts: Sequence[str], role: Role) -> Float32:
        """Encode texts as unit vectors, (n, dimension) float32.

        Args:
            role: Whether they are queries or documents.
        """
        return self.embed(self.tokenize(texts, role))

    def _run(self, texts: Sequence[Sequence[int]], length: int) -> Float32:
        rows = len(texts)
        ids = np.zeros((2 if rows == 1 and self.config.pair_lone_texts else rows, length), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row in range(len(ids)):
            text = texts[min(row, rows - 1)]
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1
        feed = {"input_ids": ids, "attention_mask": mask}
        output: Float32 = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        if output.shape != (len(ids), self.config.dimension):
            raise EncoderError(
                f"{self.config.name}: gives vectors of shape {output.shape[1:]}, not {CONFIG}'s; {_REMEDY}"
            )
        return output[:rows]


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The threads that share a text's products wait for the next one awake, but not for the next text.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3  # errors only: the optimiser's remarks mean nothing to whoever runs the service
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception type for each of its status codes, with no common base
        raise EncoderError(f"{path}: onnxruntime cannot load this model; {_REMEDY}") from error


def _equal_length_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group positions by length, shortest first: at most _BATCH_TOKENS a group, but never fewer than two rows."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, group in itertools.groupby(order, key=lengths.__getitem__):
        size = max(2, _BATCH_TOKENS // max(1, length))
        while batch := list(itertools.islice(group, size)):
            yield batch


def _first_message(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
