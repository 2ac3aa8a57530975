"""The names of the kinds of policy, for code that reads releases without NumPy."""

from typing import Literal

ThresholdKind = Literal["similarity", "relative", "gap", "probability"]  # those that have a τ
PolicyKind = Literal[ThresholdKind, "none"]
Metric = Literal["accuracy", "ndcg"]
PLAIN = frozenset[PolicyKind | None]({"similarity", "none"})  # with no score but that of the index, as in the papers
