"""evidence.json: grades and scores of the labelled queries, without texts, from which figures can be recomputed.

`check_certificate.py` reads it with Python's standard library alone. Numbers are the shortest decimals that are read as
the same float32 or float64. None is written as null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, Float64
from taugate.release.refusal_records import QuestionKind

FORMAT: Literal[1] = 1
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class QueryEvidence:
    """The queries without an answer, in the order of the data set; n of them."""

    cluster: Integers  # (n,) equal numbers for queries that were drawn together; shared with the answerable ones
    scores: Float32  # (n, K) scores of the results, best first; null for a missing result
    relevance: Float32 | None  # (n, K) estimated relevance of these results; None without a model
    refusal: Float32 | None  # (n,) scores that are compared with ρ; None if no query is refused


@dataclass(frozen=True)
class AnswerableEvidence(QueryEvidence):
    """The answerable queries."""

    role: str  # a letter for each query: h for held out, f for one that fits a model or limits ρ, c for the others
    # (n, K) grades of the results: 1 or more answers, below 0 only gains in NDCG, by its absolute value.
    grades: Integers
    ideal: Float64  # (n,) DCG@K of a perfect ranking
    # (n, K) numbers, equal for chunks of one document; None if no document has several.
    document: NDArray[np.int32] | None
    correct: Float32  # (n,) score of the best relevant document, whether it is a result or not
    random: Float32 | None  # (n,) score of a random document; None if only results are scored


@dataclass(frozen=True)
class QuestionEvidence:
    """The n questions of one kind that no document answers."""

    # (n,) float32 scores that are compared with ρ; without ρ, the best values that are compared with τ.
    refusal: Float32
    cluster: Integers  # (n,) equal numbers for questions that count as one
    chooses: NDArray[np.int8]  # (n,) 1 if the question helps to choose ρ, else 0
    field: list[str] | None  # (n,) fields of questions that come with Taugate; None for others


@dataclass(frozen=True)
class EvidenceFile:
    """The content of evidence.json."""

    answerable: AnswerableEvidence
    unanswerable: QueryEvidence
    questions: Mapping[QuestionKind, QuestionEvidence]
    zero: bool  # whether a score of 0 means unrelated, so that `auto` tries shares of the best score
    count_at_most: int | None  # largest number of queries that a document counts for, before a certificate lowers it
    planned_rho: float | None  # ρ before the certificate lowered it; None if it did not
    given_rho: bool  # whether ρ was given, or is that of an earlier release
    format: Literal[1] = FORMAT

    def save(self, path: Path) -> None:
        """Write the file."""
        content = orjson.dumps(self, np.ascontiguousarray, orjson.OPT_SERIALIZE_NUMPY)  # orjson asks for it if not
        path.write_bytes(content + b"\n")
