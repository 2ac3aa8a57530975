"""Two releases side by side: the rows that the report and `taugate release diff` show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from calibration.report.numbers import NOTHING, count, fixed, signed

Value = str | int | float | None

_DATA = ("name", "split", "documents", "queries", "answerable", "unanswerable", "truncated_documents")
_DIGESTS = ("corpus", "queries", "qrels")
_ENCODER = ("name", "revision", "runtime", "precision", "dimension", "max_length", "pooling", "sha256")
_POLICY = ("kind", "method", "metric", "k", "psi", "max_loss", "max_empty", "confidence")
_INTERVALS = ("accuracy", "accuracy_at_tau", "ndcg", "ndcg_at_tau", "coe", "roe")
_ABSTENTION = ("answerable_empty", "unanswerable_empty", "auroc", "aurc")
_PARTS = ("calibration", "heldout")


@dataclass(frozen=True)
class Row:
    """One fact of two releases.

    old, new: None where a release does not have it; difference: new less old for numbers in the same unit, else
    "changed" where they differ and None where they do not. digits: after the point, for those that are not whole.
    """

    group: str
    label: str
    old: Value
    new: Value
    difference: str | int | float | None
    digits: int = 4

    def cells(self) -> tuple[str, str, str]:
        """Old, new and difference as they are written."""
        if self.difference is None or isinstance(self.difference, str):
            difference = self.difference or ""
        else:
            difference = signed(self.difference, 0 if isinstance(self.difference, int) else self.digits)
        return self._text(self.old), self._text(self.new), difference

    def _text(self, value: Value) -> str:
        if isinstance(value, int):
            return count(value)
        return value or NOTHING if isinstance(value, str) else fixed(value, self.digits)


def comparison(old: BaseModel | Mapping[str, Any], new: BaseModel | Mapping[str, Any]) -> list[Row]:
    """What the old and the new release hold, in the same order for any two. A manifest may lack what it does not know.

    Thresholds of two different policies are in different units, and have no difference.
    """
    before, after = _plain(old), _plain(new)
    same_units = _at(before, "policy.kind") == _at(after, "policy.kind")
    rows = [_row(before, after, "data", name, f"data.{name}") for name in _DATA]
    rows += [_row(before, after, "data", f"{name} digest", f"data.sha256.{name}") for name in _DIGESTS]
    rows += [_row(before, after, "encoder", name, f"encoder.{name}") for name in _ENCODER]
    rows += [_row(before, after, "policy", name, f"policy.{name}") for name in _POLICY]
    rows.insert(len(rows) - len(_POLICY) + 1, _tau(before, after, same_units=same_units))
    for part in _PARTS:
        if _at(before, f"metrics.{part}") is None and _at(after, f"metrics.{part}") is None:
            continue
        paths = [(name, f"{name}.mean") for name in _INTERVALS] + [("kept_fraction", "kept_fraction")]
        paths += [(name, f"abstention.{name}") for name in _ABSTENTION]
        rows += [_row(before, after, part, name, f"metrics.{part}.{path}") for name, path in paths]
    for group, name, path in (
        ("query set", "effective_sample_size", "query_set.effective_sample_size"),
        ("vectors", "i_a", "isotropy.i_a"),
        ("vectors", "i_b", "isotropy.i_b"),
        ("relevance", "expected_calibration_error", "relevance.expected_calibration_error"),
    ):
        rows.append(_row(before, after, group, name, path))
    return rows


def same_queries(old: BaseModel | Mapping[str, Any], new: BaseModel | Mapping[str, Any]) -> bool:
    """Whether two releases were measured on the same labelled queries of the same documents."""
    before, after = _at(_plain(old), "data"), _at(_plain(new), "data")
    return bool(before and after and before["sha256"] == after["sha256"] and before["split"] == after["split"])


def _tau(before: Any, after: Any, *, same_units: bool) -> Row:  # noqa: ANN401 (JSON)
    row = _row(before, after, "policy", "tau", "policy.tau")
    return Row(row.group, row.label, row.old, row.new, row.difference if same_units else None, digits=6)


def _row(before: Any, after: Any, group: str, name: str, path: str) -> Row:  # noqa: ANN401 (JSON)
    old, new = _at(before, path), _at(after, path)
    difference: str | int | float | None = None if old == new else "changed"
    if isinstance(old, int | float) and isinstance(new, int | float):
        difference = new - old
    return Row(group, name.replace("_", " "), _value(old), _value(new), difference)


def _value(value: Any) -> Value:  # noqa: ANN401 (JSON)
    """A digest is told from another by its first digits."""
    if isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"):
        return value[:12]
    return value  # type: ignore[no-any-return]


def _at(record: Any, path: str) -> Any:  # noqa: ANN401 (JSON)
    for name in path.split("."):
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _plain(record: Any) -> Any:  # noqa: ANN401 (JSON)
    """Records as mappings, however deep."""
    if isinstance(record, BaseModel):
        return record.model_dump()
    if isinstance(record, Mapping):
        return {name: _plain(value) for name, value in record.items()}
    return record
