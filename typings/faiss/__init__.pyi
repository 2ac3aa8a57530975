"""FAISS without types, as for mypy: its own stubs miss most of what it adds to its classes from Python."""

from typing import Any

def __getattr__(name: str) -> Any: ...  # noqa: ANN401 (faiss has no types)
