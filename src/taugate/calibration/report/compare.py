"""Compare two releases side by side, in the rows that the report and `taugate release diff` show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from taugate.calibration.progress import NOTHING, count, fixed, signed
from taugate.registry.catalog import state_of
from taugate.storage.files import Json

Value = str | int | float | None

# Label and path of every fact, by group.
_FACTS: dict[str, dict[str, str]] = {
    "data": {
        "name": "data.name",
        "split": "data.split",
        "documents": "data.documents",
        "answerable queries": "data.answerable",
        "unanswerable queries": "data.unanswerable",
        "truncated documents": "data.truncated_documents",
        "empty documents": "data.empty_documents",
        "queries that are documents": "data.own_documents",
        "corpus digest": "data.sha256.corpus",
        "queries digest": "data.sha256.queries",
        "qrels digest": "data.sha256.qrels",
    },
    "retriever": {
        "name": "retriever.name",
        "scores": "retriever.scores",
        "component scores": "component_scores",
        "smallest depth": "retriever.depth",
        "results judged": "retriever.judged",
        "run digest": "data.sha256.run",
    },
    "encoder": {
        "name": "encoder.name",
        "revision": "encoder.revision",
        "precision": "encoder.precision",
        "dimension": "encoder.dimension",
        "longest text (tokens)": "encoder.max_length",
        "largest length of a vector": "encoder.max_norm",
        "prompt of queries": "encoder.query_prompt",
        "prompt of documents": "encoder.document_prompt",
        "digest": "encoder.sha256",
        "of queries: name": "query_encoder.name",
        "of queries: precision": "query_encoder.precision",
        "of queries: digest": "query_encoder.sha256",
    },
    "projection": {
        "kind": "projection.kind",
        "retention": "projection.retention",
        "dimensions kept": "projection.dimension",
    },
    "index": {"kind": "index.kind", "breadth": "index.breadth", "recall": "index.recall"},
    "lexical": {"weight": "lexical.weight", "k1": "lexical.k1", "b": "lexical.b", "terms": "lexical.terms"},
    "second stage": {
        "reranker": "second_stage.name",
        "candidates": "second_stage.candidates",
        "first stage τ": "second_stage.first.policy.tau",
    },
    "policy": {
        "state": "state",
        "kind": "policy.kind",
        "τ": "policy.tau",
        "ψ": "policy.psi",
        "K": "policy.k",
        "method": "policy.method",
        "metric": "policy.metric",
        "loss allowed": "policy.max_loss",
        "empty allowed": "policy.max_empty",
        "confidence": "policy.confidence",
        "answers checked": "checked.answers",
        "answers lost": "checked.lost",
    },
    "refusals": {
        "score of ρ": "refusal.score",
        "ρ": "refusal.rho",
        "unanswerable answered at most": "refusal.limits.answered.upper",
        "answerable refused at most": "refusal.limits.refused.upper",
        "off-topic questions refused": "refused.off_topic",
        "short requests refused": "refused.request",
        "near misses refused": "refused.near_miss",
        "unanswerable queries refused": "refused.unanswerable",
    },
    "measured by": {
        "bootstraps": "bootstrap.bootstraps",
        "sample size": "bootstrap.sample_size",
        "seed": "bootstrap.seed",
        "held out": "bootstrap.holdout",
        "overlap percentile": "bootstrap.overlap_percentile",
    },
    "calibration": {},
    "heldout": {},
    "query set": {"effective sample size": "query_set.effective_sample_size"},
    "isotropy": {"I_A": "isotropy.i_a", "I_B": "isotropy.i_b"},
    "relevance": {"expected calibration error": "relevance.expected_calibration_error"},
}
_METRICS = {
    "accuracy@K": "accuracy.mean",
    "accuracy@K at τ": "accuracy_at_tau.mean",
    "NDCG@K": "ndcg.mean",
    "NDCG@K at τ": "ndcg_at_tau.mean",
    "COE": "coe.mean",
    "ROE": "roe.mean",
    "results kept": "kept_fraction",
    "answerable empty": "abstention.answerable_empty",
    "unanswerable empty": "abstention.unanswerable_empty",
    "AUROC": "abstention.auroc",
    "AURC": "abstention.aurc",
    "nAUC": "nauc",
}
for _part in ("calibration", "heldout"):
    _FACTS[_part] = {label: f"metrics.{_part}.{path}" for label, path in _METRICS.items()}
# Groups that have rows only if one of the releases has this record.
_OPTIONAL = {
    "retriever": "retriever",
    "lexical": "lexical",
    "second stage": "second_stage",
    "calibration": "metrics.calibration",
    "heldout": "metrics.heldout",
}
# What the unit of a threshold depends on.
_UNITS = {
    "policy.tau": ("policy.kind", "encoder.max_norm", "lexical.weight", "second_stage.sha256"),
    "refusal.rho": ("refusal.score", "encoder.max_norm", "lexical.weight", "second_stage.sha256"),
}
_DIGITS = {"policy.tau": 6, "refusal.rho": 6, "query_set.effective_sample_size": 1}


@dataclass(frozen=True)
class ComparisonRow:
    """One fact of two releases."""

    group: str
    label: str
    old: Value  # value in the old release, None if it has none
    new: Value  # value in the new release, None if it has none
    # New minus old for numbers in the same unit, "changed" for other values that differ, None for equal or
    # incomparable values
    difference: str | int | float | None
    digits: int = 4

    @property
    def changed(self) -> bool:
        """Whether the two values differ as they are displayed."""
        return self._text(self.old) != self._text(self.new)

    def cells(self) -> tuple[str, str, str]:
        """Return old, new and difference as they are displayed."""
        if isinstance(self.difference, int | float):
            difference = signed(self.difference, 0 if isinstance(self.difference, int) else self.digits)
        else:
            difference = "=" if self.old == self.new else self.difference or NOTHING
        return self._text(self.old), self._text(self.new), difference

    def _text(self, value: Value) -> str:
        if isinstance(value, int):
            return count(value)
        return value or NOTHING if isinstance(value, str) else fixed(value, self.digits)


def compare_releases(old: BaseModel | Mapping[str, Json], new: BaseModel | Mapping[str, Json]) -> list[ComparisonRow]:
    """Compare the facts of two releases, in a fixed order; a manifest may lack some of them.

    Thresholds of different policies, or of scores with different lexical parts, have different units, so they have no
    difference. A part of the queries that neither release was measured on has no rows, nor has a lexical part that
    neither has.
    """
    before, after = (_with_derived(facts) for facts in (old, new))
    return [
        _row(group, label, path, before, after)
        for group, facts in _FACTS.items()
        if group not in _OPTIONAL or _at(before, _OPTIONAL[group]) or _at(after, _OPTIONAL[group])
        for label, path in facts.items()
    ]


def same_queries(old: BaseModel | Mapping[str, Json], new: BaseModel | Mapping[str, Json]) -> bool:
    """Return whether two releases were measured on the same labelled queries and documents, with the same holdout."""
    before, after = _plain(old), _plain(new)
    same = ("data.sha256", "data.split", "bootstrap.seed", "bootstrap.holdout")
    return _at(before, "data") is not None and all(_at(before, path) == _at(after, path) for path in same)


def _with_derived(record: Any) -> Any:  # noqa: ANN401 (JSON)
    """Add what the manifest has in other forms: the state in words, shares refused, names in one text."""
    facts = _plain(record)
    counted = _at(facts, "refusal.evidence") or {}
    refused = {kind: value["refused"] / value["queries"] for kind, value in counted.items()}
    components = ", ".join(_at(facts, "retriever.components") or ())
    return facts | {"state": state_of(facts), "refused": refused, "component_scores": components}


def _row(group: str, label: str, path: str, before: Any, after: Any) -> ComparisonRow:  # noqa: ANN401 (JSON)
    old, new = _at(before, path), _at(after, path)
    other_unit = any(_at(before, unit) != _at(after, unit) for unit in _UNITS.get(path, ()))
    difference: str | int | float | None = None
    if old != new and not other_unit:
        numbers = isinstance(old, int | float) and isinstance(new, int | float)
        difference = new - old if numbers else "changed"
    return ComparisonRow(group, label, _value(old), _value(new), difference, _DIGITS.get(path, 4))


def _value(value: Any) -> Value:  # noqa: ANN401 (JSON)
    """Shorten a digest to its first digits."""
    if isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"):
        return value[:12]
    return value  # type: ignore[no-any-return]


def _at(record: Any, path: str) -> Any:  # noqa: ANN401 (JSON)
    for name in path.split("."):
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _plain(record: Any) -> Any:  # noqa: ANN401 (JSON)
    """Turn records into mappings, recursively."""
    if isinstance(record, BaseModel):
        return record.model_dump()
    if isinstance(record, Mapping):
        return {name: _plain(value) for name, value in record.items()}
    return record
