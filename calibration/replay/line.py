"""One line of a query log, field by field."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taugate.drift.observations import query_key
from taugate.ingestion.dataset.lines import Fault

_LARGEST = float(np.finfo(np.float32).max)  # similarities are float32
_LATEST = 253_370_764_799.0  # the last second of 9998: what is drawn may end a little later
_HASHED = re.compile(r"[0-9a-f]{16}")
_REMEDY = "the line is not as the service wrote it; remove it"


@dataclass(frozen=True)
class Line:
    """number: from 1. Every method raises Fault where the service did not write the field."""

    path: Path
    number: int
    record: dict[str, Any]

    def fault(self, wrong: str) -> Fault:
        """What is wrong, with the place and the remedy."""
        return Fault(self.path, self.number, wrong, _REMEDY)

    def time(self) -> float:
        """When it was, as Unix time."""
        at = self._number("at", self.record.get("at"))
        if not 0 <= at <= _LATEST:
            raise self.fault('"at" is no time')
        return at

    def similarity(self, name: str) -> float:
        """One similarity."""
        return self._number(name, self.record.get(name))

    def similarities(self, name: str) -> list[float]:
        """A list of them."""
        values = self.record.get(name)
        if not isinstance(values, list):
            raise self.fault(f'"{name}" is no list')
        return [self._number(name, value) for value in values]

    def count(self, name: str, most: int) -> float:
        """How many of `most`."""
        value = self._number(name, self.record.get(name))
        if not 0 <= value <= most:
            raise self.fault(f'"{name}" is not from 0 to {most}')
        return value

    def text(self, name: str) -> str:
        """A string."""
        value = self.record.get(name)
        if not isinstance(value, str):
            raise self.fault(f'"{name}" is no text')
        return value

    def key(self, name: str) -> int:
        """Of a query, the same whether the service wrote its text or its hash."""
        query = self.text(name)
        return int(query, 16) if _HASHED.fullmatch(query) else query_key(query)

    def _number(self, name: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _LARGEST:
            raise self.fault(f'"{name}" is no number')
        return float(value)
