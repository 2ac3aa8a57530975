"""No code compares a string with the name of a kind: what depends on the kind is asked of its object."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import taugate
from taugate.policy.names import ThresholdKind
from taugate.policy.policy import POLICIES
from taugate.policy.score_relevance import SCALES, ScoreScale
from taugate.release.names import INDEX_KINDS, METHODS, STATEMENTS, Kind, Method, Statement
from taugate.release.search_records import RerankerKind

ROOT = Path(taugate.__file__).parent
# Names of kinds, and the folder that defines them.
FOLDERS = {
    "policy": {*get_args(ThresholdKind), *get_args(ScoreScale)},
    "retrieval/index": {*get_args(Kind)},
    "retrieval/engines": {"faiss", "milvus", "pgvector"},
    "retrieval/rerank": {*get_args(RerankerKind)} - {"endpoint"},  # an encoder may be behind one as well
    "release": {*get_args(Method), *get_args(Statement)} - {"fixed"},  # a length of texts may be as well
}
MODULES = {
    "service/runtime/resources.py"  # asks whether the module named faiss is loaded
}
TEXTS = ("*.j2", "*.html")


def strings(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def compared(source: str) -> Iterator[tuple[int, set[object]]]:
    """Yield the line and the strings of each comparison, and of each choice by the keys of a literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            yield node.lineno, strings(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            yield node.lineno, {key for part in node.value.keys if part is not None for key in strings(part)}


def names_compared(source: str, folder: str) -> list[int]:
    """Return the lines of a file that ask for a kind of another folder by its name."""
    foreign = set().union(*(names for own, names in FOLDERS.items() if own != folder))
    return [line for line, found in compared(source) if found & foreign]


def test_comparison_with_a_kind_is_found() -> None:
    source = 'if policy.kind in {"gap", "none"}:\n    pass\nwords = {"hnsw": "a graph"}[index.kind]\nx = "gap"\n'
    assert names_compared(source, "calibration/report") == [1, 3]
    assert names_compared(source, "policy") == [3]


@pytest.mark.parametrize(
    "path", [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.iterdir()) if path.is_dir()]
)
def test_no_string_is_compared_with_a_kind(path: str) -> None:
    found = [
        f"{name}:{line}"
        for file in sorted((ROOT / path).rglob("*.py"))
        if (name := file.relative_to(ROOT).as_posix()) not in MODULES
        for line in names_compared(file.read_text(), Path(name).parent.as_posix())
    ]
    assert not found


def test_templates_ask_no_kind_by_name() -> None:
    names = set().union(*FOLDERS.values())
    for file in (file for pattern in TEXTS for file in ROOT.rglob(pattern)):
        text = file.read_text()
        assert not [name for name in names if f'== "{name}"' in text or f'("{name}"' in text], file


def test_every_kind_has_an_object() -> None:
    assert {score.kind for score in POLICIES.values()} == {*get_args(ThresholdKind), "none"}
    assert {*SCALES} == {*get_args(ScoreScale)}
    assert {*INDEX_KINDS} == {*get_args(Kind)}
    assert {*METHODS} == {*get_args(Method)}
    assert {*STATEMENTS} == {*get_args(Statement), "labels"}
