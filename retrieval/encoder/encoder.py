"""Texts to unit vectors with onnxruntime: the same exported bytes, the same code at calibration and in the service."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import onnxruntime
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from taugate.errors import EncoderError
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import sha256_files

CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def processors(root: Path = CGROUP, own: Path = _OWN_GROUP) -> int:
    """Whole processors, at least one: 1.5 of a container are 1, and the half is left for all but encoding.

    The smallest of what the scheduler's mask allows and the quotas of this process's control groups. root, own: where
    the system shows them.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas(root, own))]))


def _quotas(root: Path, own: Path) -> list[float]:
    """Processors that the control groups above this process grant, of version 2 and of version 1."""
    groups = [line.split(":", 2) for line in _read(own).splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in groups if number == "0" and not controllers]
    legacy = [path for _, controllers, path in groups if "cpu" in controllers.split(",")]
    found = [_unified(folder) for path in unified for folder in _upwards(root, path)]
    found += [_legacy(folder) for path in legacy for folder in _upwards(root / "cpu", path)]
    return [quota for quota in found if quota is not None]


def _upwards(root: Path, path: str) -> list[Path]:
    """A group's folder and those above it: the tightest quota holds. In a container the root is the group itself."""
    folder = root / path.lstrip("/")
    return [root, *(each for each in (folder, *folder.parents) if root in each.parents)]


def _unified(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.max").split())


def _legacy(folder: Path) -> float | None:
    return _ratio([_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")])


def _ratio(numbers: list[str]) -> float | None:
    """Quota over period; None for no quota: "max" in version 2, −1 in version 1, or no such file."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


MODEL, TOKENIZER, CONFIG = "model.onnx", "tokenizer.json", "encoder.json"
FILES = (MODEL, TOKENIZER, CONFIG)
Role = Literal["query", "document"]

# Tokens a batch: no other size is faster by more than the noise (docs/benchmarks/encoder.md).
_BATCH_TOKENS = 1024
# Far beyond any encoder that there is, so that a file that lies cannot ask for all memory. Tokens are as many as the
# tokenizer can count: some encoders read texts of any length.
_MOST_DIMENSIONS, _MOST_TOKENS, _MOST_PADDING = 1 << 16, (1 << 31) - 1, 1 << 10
_MOST_BYTES = {TOKENIZER: 256 << 20, CONFIG: 1 << 20}  # a vocabulary of 250,000 pieces takes 17 MB
_REMEDY = "give another encoder, or remove this one from the cache"


class EncoderConfig(BaseModel):
    """Everything about an exported encoder that its graph and tokenizer do not say themselves.

    max_length: tokens, special ones included; pad_multiple: texts are padded to a multiple of so many tokens, so that
    more of them share a batch; pair_lone_texts: whether the graph gives a text alone in its batch other last bits than
    in company; max_cosine_difference: the largest 1 − cosine between PyTorch and the graph over the
    texts that the export was checked on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    runtime: Literal["onnxruntime"] = "onnxruntime"
    precision: Literal["float32", "int8"] = "float32"
    dimension: int = Field(ge=1, le=_MOST_DIMENSIONS)
    max_length: int = Field(ge=1, le=_MOST_TOKENS)
    pooling: str
    normalize: Literal[True] = True
    query_prompt: str = ""
    document_prompt: str = ""
    special_tokens: bool = True
    pad_multiple: int = Field(default=1, ge=1, le=_MOST_PADDING)
    pair_lone_texts: bool = True
    max_cosine_difference: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as token ids, cut at the encoder's maximum length; `truncated` when something was cut off."""

    ids: list[int]
    truncated: bool


class OnnxEncoder:
    """An exported encoder, loaded from its folder.

    A vector depends on its text alone, to the last bit: texts of equal length share a batch, each padded by as much as
    its own length says, and where a graph gives a lone text other bits, it is run beside itself.
    """

    def __init__(self, folder: Path, config: EncoderConfig, sha256: str, threads: int) -> None:
        self.folder = folder
        self.config = config
        self.sha256 = sha256
        self._session = _session(folder / MODEL, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        width = self._session.get_outputs()[0].shape[-1]
        strange = not self._inputs <= {"input_ids", "attention_mask"}
        if strange or (isinstance(width, int) and width != config.dimension):
            raise EncoderError(f"{folder / MODEL}: inputs or dimension are not those of {CONFIG}; {_REMEDY}")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(config.max_length)
        except Exception as error:  # tokenizers raises bare Exception for a file it cannot read
            raise EncoderError(f"{folder / TOKENIZER}: not a tokenizer.json; {_REMEDY}") from error

    def single_threaded(self) -> Self:
        """The same encoder on one thread, for callers who embed in several threads at once; the same bits."""
        return type(self)(self.folder, self.config, self.sha256, threads=1)

    @classmethod
    def load(cls, folder: Path, threads: int | None = None) -> Self:
        """Load an exported encoder; `threads` defaults to the processors this process may use.

        Raises EncoderError when a file is missing or is not what its name says.
        """
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise EncoderError(f"{folder}: {', '.join(missing)} missing; {_REMEDY}")
        for name, most in _MOST_BYTES.items():
            if (folder / name).stat().st_size > most:
                raise EncoderError(f"{folder / name}: more than {most} bytes; {_REMEDY}")
        try:
            config = EncoderConfig.model_validate_json((folder / CONFIG).read_bytes())
        except ValidationError as error:
            raise EncoderError(f"{folder / CONFIG}: {_first(error)}; {_REMEDY}") from error
        return cls(folder, config, sha256_files(folder, FILES), threads or processors())

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Token ids of texts, the role's prompt in front of each."""
        prompt = self.config.query_prompt if role == "query" else self.config.document_prompt
        prompted = [prompt + text for text in texts] if prompt else list(texts)
        encodings = self._tokenizer.encode_batch(prompted, add_special_tokens=self.config.special_tokens)
        return [Tokens(encoding.ids, bool(encoding.overflowing)) for encoding in encodings]

    def padded(self, length: int) -> int:
        """How many tokens are encoded of a text of so many: texts for which this is equal share a batch."""
        multiple = self.config.pad_multiple
        return max(length, min(-(-length // multiple) * multiple, self.config.max_length))

    def embed(self, tokens: Sequence[Tokens], progress: Callable[[int], object] | None = None) -> Float32:
        """Unit vectors, float32 (n, dimension), in the order of `tokens`; `progress` is told how many more are done.

        A text without a single token has the zero vector, similar to nothing. Raises EncoderError on NaN or infinity.
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
        """Unit vectors of texts, float32 (n, dimension)."""
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
    options.log_severity_level = 3  # errors only: the optimiser's remarks are no news to whoever runs the service
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception type for each of its status codes, with no common base
        raise EncoderError(f"{path}: onnxruntime cannot load this model; {_REMEDY}") from error


def _equal_length_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions grouped by length, shortest first, at most _BATCH_TOKENS a group (but never fewer than two rows)."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for length, group in itertools.groupby(order, key=lengths.__getitem__):
        size = max(2, _BATCH_TOKENS // max(1, length))
        while batch := list(itertools.islice(group, size)):
            yield batch


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
