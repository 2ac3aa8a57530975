"""The names of the kinds of policy, and τ in words, for code that reads releases without NumPy."""

from typing import Literal

ThresholdKind = Literal["similarity", "relative", "gap", "probability"]  # those that have a τ
PolicyKind = Literal[ThresholdKind, "none"]
Metric = Literal["accuracy", "ndcg"]
NO_CUT = -3.4028234663852886e38  # τ of a certified release that drops no result: the lowest float32
PLAIN = frozenset[PolicyKind | None]({"similarity", "none"})  # with no score but that of the index, as in the papers


def shown_tau(tau: float) -> str:
    """Return τ for people."""
    return "−∞" if tau == NO_CUT else f"{tau:.3f}"
