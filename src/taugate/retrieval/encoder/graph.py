"""A model as a graph for onnxruntime, run on batches of one length."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taugate.errors import EncoderError
from taugate.retrieval.gpu import new_session, uses_gpu
from taugate.retrieval.vectors.similarity import Float32

if TYPE_CHECKING:
    import onnxruntime

MODEL = "model.onnx"
DATA = "model.onnx_data"  # weights of a graph that are too large for its own file
# Tokens per batch; no other size is measurably faster (docs/benchmarks/encoder.md). A longer text has its own batch.
_BATCH_TOKENS = 1024


class Graph:
    """A graph with the inputs input_ids and attention_mask, (batch, tokens) int64, and one float32 output.

    The output is (batch, d), or (batch, tokens, d) if the graph gives a vector per token.
    Texts of equal padded length share a batch, the padding depends on the text's own length, and if a graph computes
    other bits for a lone text, the text is paired with itself. So a vector depends on its text alone, to the last bit;
    on a GPU, to rounding.

    Attributes:
        dimension: d; None if the graph does not declare it.
        on_gpu: Whether a GPU computes it.
    """

    packed = False

    def __init__(self, path: Path, threads: int, max_length: int, pad_multiple: int, *, pair_lone_texts: bool) -> None:
        """Load the graph.

        Args:
            path: The file.
            threads: Threads for a batch.
            max_length: Longest text in tokens.
            pad_multiple: Texts are padded to a multiple of this many tokens, so that more texts share a batch.
            pair_lone_texts: Whether a text alone in its batch gets other last bits than in a larger batch.

        Raises:
            EncoderError: If onnxruntime cannot load it, or it has other inputs.
        """
        self._session = load_session(path, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        width = self._session.get_outputs()[0].shape[-1]
        self.dimension = width if isinstance(width, int) else None
        self.on_gpu = uses_gpu(self._session)
        if not self._inputs <= {"input_ids", "attention_mask"}:
            raise EncoderError(f"{path}: has inputs other than input_ids and attention_mask")
        self._max_length, self._pad_multiple, self._pair_lone_texts = max_length, pad_multiple, pair_lone_texts

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions of texts of one padded length, shortest first.

        A batch has at most _BATCH_TOKENS tokens or two texts. A text of more tokens has its own.

        Args:
            lengths: Tokens of each text.
        """
        padded = [self.padded(length) for length in lengths]
        order = sorted(range(len(padded)), key=padded.__getitem__)
        for length, group in itertools.groupby(order, key=padded.__getitem__):
            size = 1 if length > _BATCH_TOKENS else max(2, _BATCH_TOKENS // max(1, length))
            while batch := list(itertools.islice(group, size)):
                yield batch

    def padded(self, length: int) -> int:
        """Return the padded length of a text of `length` tokens."""
        return max(length, min(-(-length // self._pad_multiple) * self._pad_multiple, self._max_length))

    def run(self, texts: Sequence[Sequence[int]], attended: Sequence[int] | None = None) -> Float32:
        """Encode the token ids of a batch of one padded length.

        Args:
            texts: Token ids of n texts.
            attended: Number of first tokens of each text that all its tokens attend to, by default all.

        Returns:
            (n, d) float32, or (n, padded length, d) of a graph that gives a vector per token.
        """
        rows, length = len(texts), self.padded(len(texts[0]))
        paired = rows == 1 and self._pair_lone_texts and length <= _BATCH_TOKENS
        ids = np.zeros((2 if paired else rows, length), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row in range(len(ids)):
            text = texts[min(row, rows - 1)]
            ids[row, : len(text)] = text
            mask[row, : len(text) if attended is None else attended[min(row, rows - 1)]] = 1
        feed = {"input_ids": ids, "attention_mask": mask}
        output: Float32 = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        return output[:rows]


def load_session(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    """Load a graph that computes a batch with so many threads; raises EncoderError if onnxruntime cannot."""
    import onnxruntime  # slow to load, and only encoding needs it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads spin between the products of one text, but not until the next text.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 4  # fatal only: errors are exceptions, and the optimiser's remarks help no operator
    try:
        return new_session(path, options)
    except Exception as error:  # onnxruntime has one exception type per status code, without a common base
        raise EncoderError(f"{path}: onnxruntime cannot load this model") from error
