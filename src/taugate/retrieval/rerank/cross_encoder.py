"""A cross-encoder reads a query and a text together, and gives the pair one score.

Its model is a graph for onnxruntime, or BERT-like weights for the kernel, which is faster. Scores are those of
sentence-transformers' CrossEncoder.predict, with the model's own activation.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from taugate.errors import EncoderError, ReleaseError, RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import RerankerScale
from taugate.release.encoder import DATA, MODEL, TOKENIZER, WEIGHTS, Precision
from taugate.release.layout import RERANKER_CONFIGS
from taugate.release.search_records import RerankerKind
from taugate.retrieval.encoder.bert import BertModel, kernel_path, load_session
from taugate.retrieval.encoder.encoder import load_tokenizer
from taugate.retrieval.hardware import processors
from taugate.retrieval.rerank.stage import checked_scores, read_exported
from taugate.storage.tensors import Arrays, map_tensors

if TYPE_CHECKING:
    from tokenizers import Encoding


HEAD = ("head.weight", "head.bias", "score.weight", "score.bias")  # arrays behind the layers of a BERT-like model
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Tokens between two looks at the clock: some 25 ms of a model of six layers on one core. Larger batches are no faster
# per token on a processor.
_BATCH_TOKENS = 1024
# Pairs are padded to a multiple of this many tokens, so that several of the 20 candidates share a batch.
_PAD_MULTIPLE = 16

CONFIG = RERANKER_CONFIGS["cross-encoder"]
FILES = (MODEL, DATA, WEIGHTS, TOKENIZER, CONFIG)  # one model; DATA only beside a graph with large weights
# What published cross-encoders of one label give: a probability, or log-odds.
Activation = Literal["sigmoid", "identity"]
_MAX_TOKENS = 1 << 20
_REMEDY = "export the cross-encoder again"


class PairGraph:
    """A graph of pairs: one score for each row of ids, mask and, if it reads them, token types."""

    def __init__(self, path: Path, threads: int, max_length: int) -> None:
        """Load the graph. Raises EncoderError if onnxruntime cannot load it, or it has other inputs."""
        self._session = load_session(path, threads)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._max_length = max_length
        if not {*self._inputs} <= {*INPUTS}:
            raise EncoderError(f"{path}: has inputs other than {', '.join(INPUTS)}")

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions of pairs of one padded length, shortest first: up to _BATCH_TOKENS tokens, or one pair."""
        padded = [self._padded(length) for length in lengths]
        order = sorted(range(len(padded)), key=padded.__getitem__)
        for length, group in itertools.groupby(order, key=padded.__getitem__):
            while batch := list(itertools.islice(group, max(1, _BATCH_TOKENS // length))):
                yield batch

    def run(self, pairs: Sequence["Encoding"]) -> Float32:
        """Return the outputs of n pairs of one padded length, (n, 1) float32; of a damaged graph in another shape."""
        shape = len(pairs), self._padded(max(len(pair.ids) for pair in pairs))
        feed = {name: np.zeros(shape, dtype=np.int64) for name in INPUTS}
        for row, pair in enumerate(pairs):
            length = slice(len(pair.ids))
            feed["input_ids"][row, length] = pair.ids
            feed["attention_mask"][row, length] = 1
            feed["token_type_ids"][row, length] = pair.type_ids
        output: Float32 = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        return output

    def _padded(self, length: int) -> int:
        return min(-(-length // _PAD_MULTIPLE) * _PAD_MULTIPLE, self._max_length)


class PairBert:
    """A BERT-like model with a head of two products: score = tanh(x·Wᵀ + b)·vᵀ + c of a pair's first token x.

    Any processor can run it, as the scores are the same by every path of the kernel; without AVX2, it is slow.
    """

    def __init__(self, path: Path, precision: Precision, threads: int) -> None:
        """Read the weights; `path`: the file that `taugate.calibration.encoding.rerankers` wrote."""
        self._bert = BertModel(path, precision, threads, kernel_path(precision))
        try:
            arrays = map_tensors(path)
            self._types, self._head = len(arrays.get("types", [0])), head_of(arrays, self._bert.dimension)
        except (ReleaseError, OSError, ValueError, KeyError) as error:
            raise EncoderError(f"{path}: not a cross-encoder in {precision}; calibrate again") from error

    def batches(self, lengths: Sequence[int]) -> Iterator[range]:
        """Yield ranges of pairs that the kernel reads together; see `BertModel.batches`."""
        yield from self._bert.batches(lengths)

    def run(self, pairs: Sequence["Encoding"]) -> Float32:
        """Return the outputs of n pairs, (n, 1) float32."""
        dense, bias, score, constant = self._head
        vectors = self._bert.run([typed_ids(pair, self._bert.vocabulary, self._types) for pair in pairs])
        outputs: Float32 = np.tanh(vectors @ dense.T + bias) @ score.T + constant
        return outputs


def typed_ids(pair: "Encoding", vocabulary: int, types: int) -> list[int]:
    """Return the ids of a pair's tokens with their types, as `BertModel` reads them.

    Args:
        types: Number of token types; with one, those of the pair do not matter.
    """
    if types == 1:
        ids: list[int] = pair.ids
        return ids
    return [token + vocabulary * kind for token, kind in zip(pair.ids, pair.type_ids, strict=True)]


def head_of(arrays: Arrays, hidden: int) -> tuple[Float32, Float32, Float32, Float32]:
    """Return W (hidden, hidden), b (hidden,), v (1, hidden) and c (1,) of a head."""
    head = dense, bias, score, constant = tuple(arrays[name] for name in HEAD)
    shapes = [(hidden, hidden), (hidden,), (1, hidden), (1,)]
    if [array.shape for array in head] != shapes or any(array.dtype != np.float32 for array in head):
        raise ValueError("the head is of another model")
    return dense, bias, score, constant


class CrossEncoderConfig(BaseModel):
    """What graph and tokenizer of an exported cross-encoder do not contain."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    max_length: int = Field(ge=8, le=_MAX_TOKENS)  # longest pair in tokens, including special ones
    activation: Activation  # function of the graph's output that gives the score
    # largest difference between PyTorch's scores and the graph's over the pairs checked at export
    max_difference: float = Field(ge=0)
    # weight of the first stage's score in the score that ranks, of a model that `taugate adapt` trained. 0, and not
    # written, if the model ranks alone
    first_stage_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: not weight)
    # precision of the weights; float32 is a graph, anything cheaper is for the kernel
    precision: Precision = Field(default="float32", exclude_if=lambda value: value == "float32")


class CrossEncoder:
    """An exported cross-encoder, loaded from its folder."""

    kind: RerankerKind = "cross-encoder"
    config_file = CONFIG
    kernel_needs = "with one layer between it and its score"
    parallel = 1

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        """Load the files; `threads`: threads for a batch, by default the processors that this process may use."""
        self.folder = folder
        self.config, self.sha256 = read_exported(folder, CrossEncoderConfig, CONFIG, FILES, "cross-encoder")
        self._tokenizer = load_tokenizer(folder, self.config.max_length, _REMEDY)
        self._model = self._load_model(threads or processors())

    def _load_model(self, threads: int) -> PairGraph | PairBert:
        if self.is_cheaper:
            return PairBert(self.folder / WEIGHTS, self.config.precision, threads)
        try:
            return PairGraph(self.folder / MODEL, threads, self.config.max_length)
        except EncoderError as error:
            raise EncoderError(f"{error}; {_REMEDY}") from error

    def scale(self, scores: Float32) -> RerankerScale:
        """Return what its scores are, given those of the candidates."""
        return "similarity" if self.config.activation == "sigmoid" else "logit"

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
