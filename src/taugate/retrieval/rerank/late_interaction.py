"""Late interaction: compares the vectors of a query's tokens with those of the candidates' tokens, which are stored.

Largest similarities of a query's tokens to those of each document, which are stored with a byte per component. The
query is rounded to a byte per component, too, with a scale for every 64, so that the kernel multiplies integers, with
the same bits on all processors. Without the kernel, NumPy multiplies the rounded numbers in float32.

The score is MaxSim (Khattab and Zaharia, "ColBERT", SIGIR 2020, eq. 3) divided by the number of the query's vectors, so
that one threshold fits queries of all lengths: the mean, over the query's tokens, of the largest similarity to a token
of the document. The token vectors of an encoder that was not trained for it count by how rare the token is in the
documents. A stored vector has one byte per component and one scale.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EncoderError, ReleaseError, RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.bert import BLOCK, kernel, panels, scale_panels
from taugate.retrieval.index.top_k import Candidate
from taugate.retrieval.rerank.reranker import Reranker, checked_scores
from taugate.retrieval.rerank.token_encoder import EncodedTokens, TokenEncoder
from taugate.storage.tensors import Arrays, map_tensors, write_tensors

_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_TINY = np.finfo(np.float32).tiny  # in place of the largest component of a zero vector
_FASTEST = 0  # path of the kernel


class CodedTokens(NamedTuple):
    """Vectors of tokens: codes (tokens, dimension) int8, of which each row has a step, (tokens,) float32."""

    codes: NDArray[np.int8]
    steps: Float32


def coded(vectors: Float32) -> CodedTokens:
    """Return codes and steps of vectors, (tokens, dimension) float32."""
    steps = np.maximum(np.abs(vectors).max(axis=1), _TINY) / np.float32(_MAX_CODE)
    return CodedTokens(np.rint(vectors / steps[:, None]).astype(np.int8), steps)


class StoredTokens(NamedTuple):
    """Vectors of the tokens of N documents: codes and steps as in `CodedTokens`, of all documents."""

    codes: NDArray[np.int8]  # (tokens, dimension) int8
    steps: Float32  # (tokens,) float32
    offsets: NDArray[np.int64]  # (N + 1,) int64; document i has the tokens from offsets[i] to offsets[i + 1]


def largest_products(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    """Return the largest product of every token of a query with the tokens of each document, (n, tokens) float32.

    Args:
        query: (tokens, dimension) float32.
        stored: The documents' tokens; every document has one.
        positions: (n,) int64 positions of the documents.
    """
    tokens, dimension = query.shape
    blocks = np.pad(query, ((0, 0), (0, -dimension % BLOCK))).reshape(-1, BLOCK)
    codes, steps = coded(blocks)
    compiled = kernel()
    if compiled is None or dimension % BLOCK:
        rounded = (codes * steps[:, None]).reshape(tokens, -1)[:, :dimension]
        return _by_numpy(rounded, stored, positions)
    weights, scales = panels(codes.reshape(tokens, dimension)), scale_panels(steps.reshape(tokens, -1))
    best = np.empty((len(positions), weights.size // dimension), dtype=np.float32)
    compiled.largest_products(dimension, weights, scales, *stored, positions, best, _FASTEST)
    return best[:, :tokens]


def _by_numpy(query: Float32, stored: StoredTokens, positions: NDArray[np.int64]) -> Float32:
    bounds = [slice(*stored.offsets[position : position + 2].tolist()) for position in positions.tolist()]
    codes = np.concatenate([stored.codes[rows] for rows in bounds], dtype=np.float32)
    steps = np.concatenate([stored.steps[rows] for rows in bounds])
    starts = np.cumsum([0, *(rows.stop - rows.start for rows in bounds[:-1])])
    largest: Float32 = np.maximum.reduceat(codes @ query.T * steps[:, None], starts, axis=0)
    return largest


class TokenVectors:
    """The token vectors of N documents, mapped from a file; only those of candidates are read.

    Attributes:
        weights: (vocabulary,) float32 weights of a query's tokens by their ids; None if all count the same.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        """Map the file. Raises ReleaseError if it does not hold token vectors of this dimension."""
        try:
            arrays = map_tensors(path)
            self._stored = StoredTokens(arrays["codes"], arrays["steps"], arrays["offsets"])
            self.weights: Float32 | None = arrays.get("weights")
        except KeyError as error:
            raise ReleaseError(f"{path}: has no token vectors; calibrate again") from error
        codes, steps, offsets = self._stored
        rows = len(steps)
        fits = (
            codes.dtype == np.int8
            and steps.dtype == np.float32
            and offsets.dtype == np.int64
            and codes.shape == (rows, dimension)
            and steps.ndim == offsets.ndim == 1
            and len(offsets) > 1
            and (offsets[0], offsets[-1]) == (0, rows)
            and bool((np.diff(offsets) > 0).all())
            and (self.weights is None or (self.weights.dtype == np.float32 and bool((self.weights > 0).all())))
        )
        if not fits:
            raise ReleaseError(f"{path}: does not hold vectors of {dimension} dimensions by document; calibrate again")

    def counts(self, positions: Sequence[int]) -> list[int]:
        """Return how many vectors each of some documents has."""
        return [len(self[position].steps) for position in positions]

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._stored.offsets) - 1

    def __getitem__(self, position: int) -> CodedTokens:
        """Return the vectors of the document at a position."""
        rows = slice(*self._stored.offsets[position : position + 2].tolist())
        return CodedTokens(self._stored.codes[rows], self._stored.steps[rows])

    @property
    def dimension(self) -> int:
        """Dimension of a vector."""
        return int(self._stored.codes.shape[1])

    def save(self, path: Path, positions: Iterable[int] | None = None) -> None:
        """Write the token vectors of some documents to a file, by default of all."""
        chosen = range(len(self)) if positions is None else positions
        write_token_vectors(path, (self[position] for position in chosen), self.weights)

    def similarities(self, query: EncodedTokens, positions: NDArray[np.int64]) -> Float32:
        """Return the weighted means of the largest similarities of a query's tokens, (n,) float32.

        Args:
            positions: (n,) int64 positions of the documents.
        """
        weights = np.ones(len(query.ids), np.float32) if self.weights is None else self.weights[query.ids]
        best = largest_products(query.vectors, self._stored, positions)
        return np.asarray(best @ (weights / weights.sum()), dtype=np.float32)


def write_token_vectors(path: Path, documents: Iterable[CodedTokens], weights: Float32 | None = None) -> None:
    """Write the token vectors of documents, which need not be in memory at the same time.

    Args:
        path: The file to write; two others beside it are written and removed.
        documents: Vectors of one document after the other, at least one each.
    """
    codes, steps, ends, dimension = path.with_suffix(".codes"), path.with_suffix(".steps"), [0], 0
    with codes.open("wb") as codes_file, steps.open("wb") as steps_file:
        for document in documents:
            codes_file.write(document.codes.data)
            steps_file.write(document.steps.data)
            ends.append(ends[-1] + len(document.steps))
            dimension = document.codes.shape[1]
    arrays: Arrays = {
        "codes": np.memmap(codes, np.int8, "r", shape=(ends[-1], dimension)),
        "steps": np.memmap(steps, np.float32, "r"),
        "offsets": np.array(ends, dtype=np.int64),
    }
    write_tensors(path, arrays if weights is None else arrays | {"weights": weights})
    codes.unlink()
    steps.unlink()


class LateInteraction:
    """Scores documents by their stored token vectors."""

    parallel = 1

    def __init__(self, encoder: TokenEncoder, vectors: TokenVectors) -> None:
        """Combine both; raises ReleaseError if the vectors have no weights for the tokens of a weighted encoder."""
        weights = None if vectors.weights is None else len(vectors.weights)
        if weights != (encoder.vocabulary if encoder.config.weighted else None):
            raise ReleaseError(f"{encoder.folder}: its tokens and their weights do not fit together; calibrate again")
        self.encoder, self.vectors = encoder, vectors

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """Score n documents, (n,) float32; see `Reranker`."""
        name = self.encoder.config.name
        if deadline is not None and time.monotonic() >= deadline:
            raise RerankerUnavailable(f"{name}: the deadline passed before the candidates were scored")
        if not len(positions):
            return np.empty(0, dtype=np.float32)
        try:
            (encoded,) = self.encoder.encode([query], "query")
        except EncoderError as error:
            raise RerankerUnavailable(str(error)) from error
        return checked_scores(self.vectors.similarities(encoded, positions), len(positions), name)

    def reading(self, candidates: Mapping[int, Candidate]) -> Self:
        """See `Reranker`; token vectors are in this process."""
        return self

    def forget(self) -> None:
        """Do nothing: every score is computed again."""

    def close(self) -> None:
        """Do nothing: files are unmapped with this object."""


def token_vectors_of(reranker: Reranker) -> TokenVectors | None:
    """Return the stored token vectors of late interaction; None of other kinds."""
    return reranker.vectors if isinstance(reranker, LateInteraction) else None
