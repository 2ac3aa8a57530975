"""A cross-encoder: reads a query and a text together, and gives the pair one score.

The files are those that `taugate.calibration.export.cross_encoder` writes. Scores are those of sentence-transformers'
CrossEncoder.predict, with the model's own activation.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taugate.errors import EncoderError, RerankerUnavailable
from taugate.retrieval.encoder.bert import WEIGHTS, Precision
from taugate.retrieval.encoder.graph import DATA, MODEL
from taugate.retrieval.encoder.tokenizer import TOKENIZER, load_tokenizer
from taugate.retrieval.rerank.pair_models import PairBert, PairGraph
from taugate.retrieval.rerank.reranker import checked_scores
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.control_groups import processors
from taugate.storage.files import read_bounded, sha256_files

if TYPE_CHECKING:
    from tokenizers import Encoding

CONFIG = "reranker.json"
FILES = (MODEL, DATA, WEIGHTS, TOKENIZER, CONFIG)  # one model; DATA only beside a graph with large weights
# What published cross-encoders of one label give: a probability, or log-odds.
Activation = Literal["sigmoid", "identity"]
_MAX_CONFIG, _MAX_TOKENS = 1 << 20, 1 << 20
_REMEDY = "export the cross-encoder again"


class CrossEncoderConfig(BaseModel):
    """What graph and tokenizer of an exported cross-encoder do not contain.

    Attributes:
        name: Name of the source model.
        revision: Digest of its files.
        max_length: Longest pair in tokens, including special ones.
        activation: Function of the graph's output that gives the score.
        max_difference: Largest difference between PyTorch's scores and the graph's over the pairs checked at export.
        first_stage_weight: Weight of the first stage's score in the score that ranks, of a model that `taugate adapt`
            trained. 0, and not written, if the model ranks alone.
        precision: Precision of the weights; float32 is a graph, anything cheaper is for the kernel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    max_length: int = Field(ge=8, le=_MAX_TOKENS)
    activation: Activation
    max_difference: float = Field(ge=0)
    first_stage_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: not weight)
    precision: Precision = Field(default="float32", exclude_if=lambda value: value == "float32")


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
        self.folder = folder
        self.config = _read_config(folder)
        names = [name for name in FILES if (folder / name).is_file()]
        try:
            self.sha256 = sha256_files(folder, names)
        except OSError as error:
            raise EncoderError(f"{folder}: cannot be read ({error}); {_REMEDY}") from error
        self._tokenizer = load_tokenizer(folder, self.config.max_length, _REMEDY)
        self._model = self._load_model(threads or processors())

    def _load_model(self, threads: int) -> PairGraph | PairBert:
        if self.is_cheaper:
            return PairBert(self.folder / WEIGHTS, self.config.precision, threads)
        try:
            return PairGraph(self.folder / MODEL, threads, self.config.max_length)
        except EncoderError as error:
            raise EncoderError(f"{error}; {_REMEDY}") from error

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; see `TextScorer`."""
        outputs = self.outputs(self.tokenize(query, texts), deadline)
        if self.config.activation == "sigmoid":
            outputs = (1 / (1 + np.exp(-outputs.astype(np.float64)))).astype(np.float32)
        return checked_scores(outputs, len(texts), self.config.name)

    @property
    def is_cheaper(self) -> bool:
        """True if its precision is below float32."""
        return self.config.precision != "float32"

    def tokenize(self, query: str, texts: Sequence[str]) -> "list[Encoding]":
        """Return the tokens of the pairs of a query and n texts, with their types."""
        return self._tokenizer.encode_batch([(query, text) for text in texts])

    def outputs(self, pairs: "Sequence[Encoding]", deadline: float | None = None) -> Float32:
        """Return the scores of n pairs before the activation, (n,) float32; see `TextScorer`."""
        outputs = np.empty(len(pairs), dtype=np.float32)
        for batch in self._model.batches([len(pair.ids) for pair in pairs]):
            if deadline is not None and time.monotonic() >= deadline:
                raise RerankerUnavailable(f"{self.config.name}: the deadline passed before all candidates had a score")
            output = self._model.run([pairs[place] for place in batch])
            if output.shape != (len(batch), 1):
                raise RerankerUnavailable(f"{self.folder}: gives more than one score per pair; {_REMEDY}")
            outputs[batch] = output[:, 0]
        return outputs

    def forget(self) -> None:
        """Do nothing: every score is computed again."""

    def close(self) -> None:
        """Do nothing: the session is freed with this object."""


def _read_config(folder: Path) -> CrossEncoderConfig:
    try:
        return CrossEncoderConfig.model_validate_json(read_bounded(folder / CONFIG, _MAX_CONFIG))
    except (OSError, ValidationError) as error:
        raise EncoderError(f"{folder / CONFIG}: not the configuration of a cross-encoder; {_REMEDY}") from error
