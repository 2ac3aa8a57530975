"""A cross-encoder: reads a query and a text together, and gives the pair one score.

The files are those that `taugate.calibration.export.cross_encoder` writes. Scores are those of sentence-transformers'
CrossEncoder.predict, with the model's own activation.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taugate.errors import EncoderError, RerankerUnavailable
from taugate.retrieval.encoder.graph import DATA, MODEL, load_session
from taugate.retrieval.encoder.processors import processors
from taugate.retrieval.rerank.reranker import checked_scores
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.files import read_bounded, sha256_files

if TYPE_CHECKING:
    from tokenizers import Encoding

TOKENIZER, CONFIG = "tokenizer.json", "reranker.json"
FILES = (MODEL, DATA, TOKENIZER, CONFIG)  # DATA only beside a graph with large weights
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# What published cross-encoders of one label give: a probability, or log-odds.
Activation = Literal["sigmoid", "identity"]
_MAX_CONFIG, _MAX_TOKENS = 1 << 20, 1 << 20
# Tokens between two looks at the clock: some 25 ms of a model of six layers on one core. Larger batches are no faster
# per token on a processor.
_BATCH_TOKENS = 1024
# Pairs are padded to a multiple of this many tokens, so that several of the 20 candidates share a batch.
_PAD_MULTIPLE = 16
_REMEDY = "export the cross-encoder again"


class CrossEncoderConfig(BaseModel):
    """What graph and tokenizer of an exported cross-encoder do not contain.

    Attributes:
        name: Name of the source model.
        revision: Digest of its files.
        max_length: Longest pair in tokens, including special ones.
        activation: Function of the graph's output that gives the score.
        max_difference: Largest difference between PyTorch's scores and the graph's over the pairs checked at export.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    max_length: int = Field(ge=8, le=_MAX_TOKENS)
    activation: Activation
    max_difference: float = Field(ge=0)


class CrossEncoder:
    """An exported cross-encoder, loaded from its folder.

    Attributes:
        folder: Folder of its files.
        config: Its configuration.
        sha256: Digest of its files.
    """

    parallel = 1

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        """Load the files.

        Args:
            folder: Folder of the files.
            threads: Threads for a batch, by default the processors that this process may use.

        Raises:
            EncoderError: If a file is missing or invalid.
        """
        from tokenizers import Tokenizer  # slow to load, and only encoding needs it

        self.folder = folder
        self.config = _read_config(folder)
        try:
            self.sha256 = sha256_files(folder, [name for name in FILES if name != DATA or (folder / DATA).is_file()])
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(self.config.max_length, strategy="longest_first")
        except OSError as error:
            raise EncoderError(f"{folder}: cannot be read ({error}); {_REMEDY}") from error
        except Exception as error:  # tokenizers raises bare Exception for an unreadable file
            raise EncoderError(f"{folder / TOKENIZER}: not a tokenizer.json; {_REMEDY}") from error
        self._session = load_session(folder / MODEL, threads or processors())
        self._inputs = [node.name for node in self._session.get_inputs()]
        if not {*self._inputs} <= {*INPUTS}:
            raise EncoderError(f"{folder / MODEL}: has inputs other than {', '.join(INPUTS)}; {_REMEDY}")

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; see `TextScorer`."""
        pairs = self._tokenizer.encode_batch([(query, text) for text in texts])
        outputs = np.empty(len(pairs), dtype=np.float32)
        for batch in self._batches([len(pair.ids) for pair in pairs]):
            if deadline is not None and time.monotonic() >= deadline:
                raise RerankerUnavailable(f"{self.config.name}: the deadline passed before all candidates had a score")
            output = self._run([pairs[place] for place in batch])
            if output.shape != (len(batch), 1):
                raise RerankerUnavailable(f"{self.folder / MODEL}: gives more than one score per pair; {_REMEDY}")
            outputs[batch] = output[:, 0]
        if self.config.activation == "sigmoid":
            outputs = (1 / (1 + np.exp(-outputs.astype(np.float64)))).astype(np.float32)
        return checked_scores(outputs, len(texts), self.config.name)

    def forget(self) -> None:
        """Do nothing: every score is computed again."""

    def close(self) -> None:
        """Do nothing: the session is freed with this object."""

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions of pairs of one padded length, shortest first, of _BATCH_TOKENS tokens at most or one pair.

        Args:
            lengths: Tokens of each pair.
        """
        padded = [self._padded(length) for length in lengths]
        order = sorted(range(len(padded)), key=padded.__getitem__)
        for length, group in itertools.groupby(order, key=padded.__getitem__):
            while batch := list(itertools.islice(group, max(1, _BATCH_TOKENS // length))):
                yield batch

    def _padded(self, length: int) -> int:
        return min(-(-length // _PAD_MULTIPLE) * _PAD_MULTIPLE, self.config.max_length)

    def _run(self, pairs: Sequence["Encoding"]) -> Float32:
        """Return the graph's outputs of a batch of one padded length, (n, 1) float32."""
        shape = len(pairs), self._padded(max(len(pair.ids) for pair in pairs))
        feed = {name: np.zeros(shape, dtype=np.int64) for name in INPUTS}
        for row, pair in enumerate(pairs):
            length = slice(len(pair.ids))
            feed["input_ids"][row, length] = pair.ids
            feed["attention_mask"][row, length] = 1
            feed["token_type_ids"][row, length] = pair.type_ids
        output: Float32 = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        return output


def _read_config(folder: Path) -> CrossEncoderConfig:
    try:
        return CrossEncoderConfig.model_validate_json(read_bounded(folder / CONFIG, _MAX_CONFIG))
    except (OSError, ValidationError) as error:
        raise EncoderError(f"{folder / CONFIG}: not the configuration of a cross-encoder; {_REMEDY}") from error
