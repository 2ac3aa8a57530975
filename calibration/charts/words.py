"""Policies and rules in plain words."""

from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import Method, Statement

KEEPS: dict[PolicyKind, str] = {
    "similarity": "keeps a result whose cosine similarity with the query is at least τ",
    "relative": "keeps a result whose similarity is at least the share τ of the best one found for the query",
    "probability": "keeps a result that is relevant with an estimated probability of at least τ",
    "none": "keeps every result: there is no threshold",
}
THRESHOLD_OF: dict[PolicyKind, str] = {
    "similarity": "least similarity",
    "relative": "least share of the best similarity",
    "probability": "least probability of relevance",
    "none": "least similarity",
}
METRICS = {
    "accuracy": "accuracy@{k}",
    "accuracy_at_tau": "accuracy@{k} at τ",
    "ndcg": "NDCG@{k}",
    "ndcg_at_tau": "NDCG@{k} at τ",
    "coe": "COE",
    "roe": "ROE",
}
PARTS = {"calibration": "calibration queries", "heldout": "held-out queries"}


def rule_name(method: Method, statement: Statement | None) -> str:
    """The rule that gives a threshold."""
    if method == "bootstrap":
        return "The papers' rule (bootstrap)"
    if method == "non-inferiority":
        return "Paired non-inferiority"
    return "Risk control, " + ("on average" if statement == "expected-loss" else "with high probability")
