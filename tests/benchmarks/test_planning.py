"""The planning page has the tables of the script, and the script the constants of the code."""

import math

from benchmarks.checkout import ROOT
from benchmarks.engines import planning
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.retrieval.engines.engine import GraphParameters

PAGE = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_of_the_script() -> None:
    _, tables, _ = PAGE.split(planning.MARKER)
    assert tables.strip() == planning.tables().strip()


def test_constants_are_those_of_the_code_and_of_the_pages_that_measured_them() -> None:
    assert (SHARD_ROWS, GraphParameters().edges) == (planning.SHARD_ROWS, planning.EDGES)
    measured = (ROOT / "docs" / "benchmarks" / "encoder.md").read_text(encoding="utf-8")
    assert f"| 1024 (in use) | {planning.PASSAGES_PER_SECOND}/s (1.00)" in measured


def test_a_hundred_million_passages_take_what_their_vectors_and_graph_take() -> None:
    assert math.isclose(planning.hnsw_bytes(10**8), 180e9, rel_tol=0.01)
    assert planning.disk_bytes(2) == 4096, "two nodes of 384 dimensions fit into a page"
    assert planning.machines(planning.hnsw_bytes(10**8)) == 4
    assert planning.graph_ms(planning.MEASURED_ROWS) == planning.MEASURED_MS
