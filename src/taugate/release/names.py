"""The names in releases: kinds of index, of values, methods, statements, for code that loads nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taugate.errors import ReleaseError

INDEX = "index.faiss"  # the file of an index
VECTORS = "vectors.faiss"  # the exact vectors of an index whose codes only propose documents
Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]
CENTROIDS_A_CODE = 256
POINTS_A_CENTROID = 39  # FAISS's minimum for training
MIN_FOR_CODES = CENTROIDS_A_CODE * POINTS_A_CENTROID
# An upper limit of the weight only rules out mistakes: at this weight, the cosine hardly matters.
MAX_WEIGHT = 10.0

# Kinds of the values of a field; an ISO date is both a text and a date.
BOOLEANS, NUMBERS, TEXTS, DATES = range(4)
KINDS = ("booleans", "numbers", "texts", "dates")  # for messages
_MAX_NAME_LENGTH = 40  # characters of a field's name in a message

Method = Literal["bootstrap", "non-inferiority", "risk-control", "fixed"]
Statement = Literal["high-probability", "expected-loss"]


@dataclass(frozen=True)
class IndexKind:
    """A kind of index."""

    # Whether VECTORS is beside its file; if both are possible, its own file tells, because releases of 0.2 and before
    # have none.
    vectors_beside: tuple[bool, ...] = (False,)
    min_documents: int = 0  # smallest number of documents that can be indexed
    baseline: bool = False  # whether it is the exact search that others are compared with
    lossless: bool = False  # whether it is proven to return what exact search returns


INDEX_KINDS: dict[Kind, IndexKind] = {
    "flat": IndexKind(baseline=True),
    "flat-float16": IndexKind(),
    "flat-int8": IndexKind((True, False), lossless=True),
    "hnsw": IndexKind((True, False)),
    "ivf-flat": IndexKind(),
    "ivf-pq": IndexKind((True,), min_documents=MIN_FOR_CODES),
}


@dataclass(frozen=True)
class ThresholdMethod:
    """A method that chooses a threshold."""

    title: str
    # The statements that it can make, its default first; empty if it guarantees nothing.
    statements: tuple[Statement, ...] = ()
    of_papers: bool = False  # whether it is the papers' rule
    paired: bool = False  # whether it compares each query with and without the cut
    few_labels: bool = False  # whether few labels can take the place of its certificate

    @property
    def certifies(self) -> bool:
        """Whether it guarantees anything."""
        return bool(self.statements)

    def name(self, statement: str | None) -> str:
        """Return its name, with the statement that it makes if it can make several."""
        chosen = "" if statement is None or len(self.statements) < 2 else f", {STATEMENTS[statement].words}"
        return f"{self.title}{chosen}"


@dataclass(frozen=True)
class LossStatement:
    """A statement that the loss is small."""

    words: str  # how it holds
    loss: str = "loss"  # the loss that it limits
    on_average: bool = False  # whether it limits the loss on average, so that it has no confidence
    by_test: bool = False  # whether a test of the loss of every labelled query certifies it
    of_cut_alone: bool = False  # whether it never counts queries that are refused as a whole


METHODS: Mapping[Method, ThresholdMethod] = {
    "bootstrap": ThresholdMethod("The papers' rule (bootstrap)", of_papers=True),
    "non-inferiority": ThresholdMethod("Paired non-inferiority", ("high-probability",), paired=True),
    "risk-control": ThresholdMethod("Risk control", ("high-probability", "expected-loss"), few_labels=True),
    "fixed": ThresholdMethod("A given threshold"),
}
STATEMENTS: Mapping[str, LossStatement] = {
    "high-probability": LossStatement("with high probability", by_test=True),
    "expected-loss": LossStatement("on average", "expected loss", on_average=True),
    "labels": LossStatement("from few labels", of_cut_alone=True),
}


@dataclass(frozen=True)
class ReleaseFolder:
    """One kind of content; a subclass has `write` and `open`."""

    path: Path  # folder of the files: of the release, or one in it


def disagreement(release: Path, name: str) -> ReleaseError:
    """Return the error for a file or folder that the manifest has and the release has not, or the other way round."""
    return ReleaseError(f"{release}: the manifest and its files disagree on {name}; calibrate again")


def shown(name: str) -> str:
    """Return the name of a field for a message, shortened if it is long."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
