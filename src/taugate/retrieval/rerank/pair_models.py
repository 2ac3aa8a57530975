"""The models of cross-encoders: a graph for onnxruntime, or BERT-like weights for the kernel, which is faster.

Both give the output of a pair before the activation.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taugate.errors import EncoderError, ReleaseError
from taugate.retrieval.encoder.bert import BertModel, Precision, kernel_path
from taugate.retrieval.encoder.graph import load_session
from taugate.retrieval.vectors.similarity import Float32
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


class PairGraph:
    """A graph of pairs: one score for each row of ids, mask and, if it reads them, token types."""

    def __init__(self, path: Path, threads: int, max_length: int) -> None:
        """Load the graph.

        Args:
            path: The file.
            threads: Threads for a batch.
            max_length: Longest pair in tokens.

        Raises:
            EncoderError: If onnxruntime cannot load it, or it has other inputs.
        """
        self._session = load_session(path, threads)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._max_length = max_length
        if not {*self._inputs} <= {*INPUTS}:
            raise EncoderError(f"{path}: has inputs other than {', '.join(INPUTS)}")

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions of pairs of one padded length, shortest first, of _BATCH_TOKENS tokens at most or one pair.

        Args:
            lengths: Tokens of each pair.
        """
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
        """Read the weights.

        Args:
            path: The file that `taugate.calibration.encoding.rerankers` wrote.
            precision: Precision of its weights.
            threads: Threads for a batch.

        Raises:
            EncoderError: If the file is not such a model.
            EncoderUnsupported: If this installation has no kernel.
        """
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
        pair: Ids and types of its tokens.
        vocabulary: Number of words.
        types: Number of token types; with one, those of the pair do not matter.
    """
    if types == 1:
        ids: list[int] = pair.ids
        return ids
    return [token + vocabulary * kind for token, kind in zip(pair.ids, pair.type_ids, strict=True)]


def head_of(arrays: Arrays, hidden: int) -> tuple[Float32, Float32, Float32, Float32]:
    """Return W (hidden, hidden), b (hidden,), v (1, hidden) and c (1,) of a head.

    Raises:
        KeyError: If one is missing.
        ValueError: If one has another shape or type.
    """
    head = dense, bias, score, constant = tuple(arrays[name] for name in HEAD)
    shapes = [(hidden, hidden), (hidden,), (1, hidden), (1,)]
    if [array.shape for array in head] != shapes or any(array.dtype != np.float32 for array in head):
        raise ValueError("the head is of another model")
    return dense, bias, score, constant
