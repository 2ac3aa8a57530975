"""Token vectors of a BERT-like model by the kernel, in a cheaper precision than the graph of late interaction."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from taugate.errors import EncoderError, ReleaseError
from taugate.retrieval.encoder.bert import BertModel, Precision, kernel_path
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import map_tensors

PROJECTION = "projection"  # (dimension, hidden) float32, absent if vectors have the dimension of the model
_SHORTEST = 1e-12  # length by which a shorter vector is divided, as in PyTorch's normalize


class TokenBert:
    """A BERT-like model whose token vectors are projected, if it has a projection, and then given unit length.

    Any processor can run it, as the states are the same by every path of the kernel; without AVX2, it is slow.
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
            self._projection: Float32 | None = map_tensors(path).get(PROJECTION)
        except (ReleaseError, OSError) as error:
            raise EncoderError(f"{path}: cannot be read; calibrate again") from error
        projection, hidden = self._projection, self._bert.dimension
        fits = projection is None or (projection.dtype == np.float32 and projection.shape[1:] == (hidden,))
        if not (self._bert.gives_tokens and fits):
            raise EncoderError(f"{path}: does not give vectors of tokens; calibrate again")

    def batches(self, lengths: Sequence[int]) -> Iterator[range]:
        """Yield ranges of texts that the kernel reads together; see `BertModel.batches`."""
        yield from self._bert.batches(lengths)

    def run(self, texts: Sequence[Sequence[int]], attended: Sequence[int]) -> list[Float32]:
        """Encode n texts as the unit vectors of their tokens, (tokens, dimension) float32 each.

        Args:
            texts: Token ids of n texts, at least one of each.
            attended: As for `Graph.run`; all tokens of each text, because the kernel has no mask.
        """
        lengths = [len(text) for text in texts]
        if list(attended) != lengths:
            raise EncoderError("the kernel attends to all tokens of a text; export the late-interaction model again")
        vectors = self._bert.run(texts)
        if self._projection is not None:
            vectors = vectors @ self._projection.T
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SHORTEST)
        ends = itertools.accumulate(lengths)
        return [vectors[end - length : end] for end, length in zip(ends, lengths, strict=True)]
