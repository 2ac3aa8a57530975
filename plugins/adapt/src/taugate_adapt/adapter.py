"""The adapter: one matrix learned from pairs by gradient descent, also as the last layers of a model.

It starts from the identity and minimises the contrastive loss of "Unsupervised Domain Adaption for Neural Information
Retrieval" (§4.1, InfoNCE): each query has to be nearest to its own document among the documents of all pairs and its
hard negatives. It stops early: few steps of plain gradient descent move the matrix only along directions on which many
pairs agree. That and the validation queries prevent overfitting: with adaptive steps (Adam) it overfitted from the
first steps on, and fell below the whitening from which it started.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router
from torch.nn.functional import cross_entropy, normalize

from taugate.calibration.export.torch_model import kind, of_modules
from taugate.policy.arrays import Float32
from taugate_adapt.linear import LinearMap
from taugate_adapt.pairs import PairedTexts

MAX_STEPS = 64  # more steps only lost points on every data set tried
_MAX_PAIRS = 2048  # pairs in a step: with their negatives a second on one core
_HARD_NEGATIVES = 4  # per query
_TEMPERATURE = 0.05
_RATE = 0.5


@dataclass(frozen=True)
class Checkpoint:
    """The adapter after some steps.

    Attributes:
        weight: (d, d) float32.
    """

    step: int
    loss: float
    weight: Float32


@dataclass(frozen=True)
class ContrastivePairs:
    """Queries with a document that answers each, among documents that are negatives.

    Attributes:
        queries: (n, d) float32.
        documents: (m, d) float32.
        answers: (n,) int64, rows of `documents`.
        ignored: (n, m), true if a further document answers the query or may do so; it is not a negative.
    """

    queries: torch.Tensor
    documents: torch.Tensor
    answers: torch.Tensor
    ignored: torch.Tensor
    keeps_documents: bool = False

    @classmethod
    def draw(cls, learned_from: PairedTexts, rng: np.random.Generator, *, keeps_documents: bool = False) -> Self:
        """Draw one answer for each query, and mine hard negatives."""
        pairs = learned_from.take(np.sort(rng.permutation(len(learned_from.queries))[:_MAX_PAIRS]))
        answers = np.array([rng.choice(relevant) for relevant in pairs.relevant])
        negatives = pairs.mine(_HARD_NEGATIVES, rng)
        hard = negatives.positions[negatives.positions >= 0]
        used = np.unique(np.concatenate([answers, hard]))
        ignored = np.zeros((len(answers), len(used)), dtype=np.bool_)
        for row, (relevant, suspects) in enumerate(zip(pairs.relevant, negatives.suspects, strict=True)):
            ignored[row] = np.isin(used, relevant) | np.isin(used, suspects)
        ignored[np.arange(len(answers)), np.searchsorted(used, answers)] = False
        return cls(
            torch.from_numpy(pairs.queries),
            torch.from_numpy(pairs.documents[used]),
            torch.from_numpy(np.searchsorted(used, answers)),
            torch.from_numpy(ignored),
            keeps_documents,
        )

    def descend(self, weight: torch.Tensor) -> float:
        """Make one step in place on the (d, d) weight, which has a gradient, and return the loss before it."""
        documents = self.documents if self.keeps_documents else self.documents @ weight.T
        similarities = normalize(self.queries @ weight.T, dim=1) @ normalize(documents, dim=1).T
        scores = (similarities / _TEMPERATURE).masked_fill(self.ignored, -torch.inf)
        loss = cross_entropy(scores, self.answers)
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= _RATE * gradient
        return float(loss.detach())

    def identity(self) -> torch.Tensor:
        """Return the initial weights, the identity matrix, (d, d)."""
        return torch.eye(self.queries.shape[1], requires_grad=True)


def steps_within(pairs: ContrastivePairs, seconds: float) -> int:
    """Return the number of steps for a time in seconds, a power of two up to MAX_STEPS, or 0.

    One step is made and timed, and half of the time is reserved for validation.
    """
    with _one_thread():
        began = time.perf_counter()
        pairs.descend(pairs.identity())
        allowed = 0.5 * seconds / (time.perf_counter() - began)
    steps = 0
    while max(1, 2 * steps) <= min(allowed, MAX_STEPS):
        steps = max(1, 2 * steps)
    return steps


def fit(pairs: ContrastivePairs, steps: int) -> Iterator[Checkpoint]:
    """Learn the adapter, and yield it after 1, 2, 4, … steps.

    The same pairs and steps give the same bits on the same machine.

    Args:
        steps: Number of steps. It stops early, before a checkpoint, if the loss is no longer a finite number.
    """
    weight = pairs.identity()
    for step in range(1, steps + 1):
        with _one_thread():
            loss = pairs.descend(weight)
        if not (np.isfinite(loss) and bool(torch.isfinite(weight).all())):
            return
        if step & (step - 1) == 0:
            yield Checkpoint(step, loss, weight.detach().numpy().copy())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread: the last bits of a sum depend on how it is split."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def adapted_model(model: SentenceTransformer, learned: LinearMap | None) -> SentenceTransformer:
    """Return a model whose vectors pass a map; if the map keeps documents, only vectors of queries pass it.

    In that case a Router has a route for each, and both share the modules of the base. A text without a task takes the
    route of documents.

    Args:
        model: Model from which the map was learned; it may be modified.
        learned: The map, None without a map.
    """
    if learned is None or not learned.keeps_documents:
        append_map(model, learned)
        return model
    cut = model.truncate_dim
    documents: list[Any] = [*model]  # classes without useful types
    append_map(model, learned)
    queries: list[Any] = [*model]
    router = Router.for_query_document(query_modules=queries, document_modules=documents)
    # Only documents are truncated: the map already gives vectors of queries this length.
    return of_modules([router], model, cut)


def append_map(model: SentenceTransformer, learned: LinearMap | None) -> None:
    """Append a map, in place.

    It becomes a Dense module with a bias, between the normalisation of the model and a further one, because it was
    learned from unit vectors. If the model truncates its vectors (truncate_dim), a Dense module that keeps the first
    components comes before it, because the map is of the truncated vectors.

    Args:
        learned: The map, None without a map.
    """
    if learned is None:
        return
    if model.truncate_dim is not None:
        model.truncate_dim = None
        kept = np.eye(len(learned.bias), model.get_embedding_dimension(), dtype=np.float32)
        _append(model, _dense(LinearMap(kept, np.zeros(len(kept), dtype=np.float32))))
        _append(model, Normalize())
    elif kind(model[-1]) != "Normalize":
        _append(model, Normalize())
    _append(model, _dense(learned))
    _append(model, Normalize())


def _append(model: SentenceTransformer, module: torch.nn.Module) -> None:
    model.add_module(str(len(model)), module)


def _dense(learned: LinearMap) -> Dense:
    after, before = learned.weight.shape
    return Dense(
        before,
        after,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.from_numpy(learned.weight),
        init_bias=torch.from_numpy(learned.bias),
    )
