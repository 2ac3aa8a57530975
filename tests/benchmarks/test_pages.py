"""Pages that benchmarks write are up to date. Benchmarks are run by their commands, and never imported."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.calibration.provisional.bias import read_table

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.slow
def test_benchmark_pages_match_their_modules() -> None:
    finished = run("structure.pages")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_lines_of_own_code_are_current() -> None:
    finished = run("structure.own_code", "--check")
    assert finished.returncode == 0, finished.stderr


def test_planning_tables_are_current() -> None:
    finished = run("engines.planning")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() in read("docs/planning.md")


def test_readme_table_of_guesses_matches_page() -> None:
    page, readme = read("docs/benchmarks/guesses.md").splitlines(), read("README.md").splitlines()
    (certified,) = [line for line in readme if line.startswith("| ") and "certified: `--max-loss" in line]
    end = page.index(certified)
    start = max(number for number in range(end) if not page[number])
    table = page[start + 1 : end + 1]
    first = readme.index(table[0])
    shown = readme[first : readme.index(certified) + 1]
    assert [row for row in table if row in shown] == shown, "README shows rows of the page, in its order"


def test_shipped_bias_table_matches_research_page() -> None:
    _, _, section = read("docs/research/generated-queries.md").partition("\n## The shipped table")
    _, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    table = read_table()
    assert [(name, encoder) for name, encoder, *_ in rows] == [(entry.set, entry.encoder) for entry in table]
    for (_, _, *shares), entry in zip(rows, table, strict=True):
        bias = entry.accuracy_generated - entry.accuracy_human
        accuracy, loss = (entry.accuracy_generated, entry.accuracy_human), (entry.loss_generated, entry.loss_human)
        assert [float(share) for share in shares] == pytest.approx([*accuracy, bias, *loss], abs=0.00051)


def test_research_pages_name_their_commit() -> None:
    pages = [path for path in (ROOT / "docs" / "research").glob("*.md") if path.name != "index.md"]
    index = read("docs/research/index.md")
    assert pages
    for path in pages:
        assert re.search(r"\*Measured with commit `[0-9a-f]{8}` \(\d{4}-\d\d-\d\d\)", path.read_text(encoding="utf-8"))
        assert f"]({path.name})" in index
