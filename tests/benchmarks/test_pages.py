"""Pages that benchmarks write are up to date. Benchmarks are run by their commands, and never imported."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.calibration.provisional import read_table
from taugate.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_papers_page_names_files_and_commands() -> None:
    page = read("docs/papers.md")
    rows = re.findall(r"^\| .+ \| .+ \| `([a-z]+)[^`]*` \| `([\w/]+\.py)` \|$", page, re.MULTILINE)
    assert len(rows) > 20
    folders = (ROOT / "src" / "taugate", ROOT)
    assert [file for _, file in rows if not any((folder / file).is_file() for folder in folders)] == []
    assert {name for name, _ in rows} <= {*COMMANDS}


def test_papers_page_puts_published_beside_measured() -> None:
    """Every row of a table by encoder is published, or measured with a word on what is published."""
    page = read("docs/papers.md")
    said = re.findall(r"^\| [`\w ]+ \| (?:MiniLM|sre|mpnet|bge_large|llm_embedder) \| ([^|]+) \|", page, re.MULTILINE)
    assert len(said) > 40
    assert {re.sub(r"^.*; (?=measured)", "", words.strip()) for words in said} <= {
        "published",
        "measured outside",
        "measured outside, q′ = qW",
        "measured",
        "measured; not published",
        "not run",
    }


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
    page, readme = read("benchmarks/results/guesses.md").splitlines(), read("README.md").splitlines()
    (certified,) = [line for line in readme if line.startswith("| ") and "certified: `--max-loss" in line]
    end = page.index(certified)
    start = max(number for number in range(end) if not page[number])
    table = page[start + 1 : end + 1]
    first = readme.index(table[0])
    shown = readme[first : readme.index(certified) + 1]
    assert [row for row in table if row in shown] == shown, "README shows rows of the page, in its order"


def test_shipped_bias_table_matches_decisions() -> None:
    _, _, section = read("benchmarks/decisions.md").partition("\n### The shipped table\n")
    section, _, _ = section.partition("\n## ")
    _, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    table = read_table()
    assert [(name, encoder) for name, encoder, *_ in rows] == [(entry.set, entry.encoder) for entry in table]
    for (_, _, *shares), entry in zip(rows, table, strict=True):
        bias = entry.accuracy_generated - entry.accuracy_human
        accuracy, loss = (entry.accuracy_generated, entry.accuracy_human), (entry.loss_generated, entry.loss_human)
        assert [float(share) for share in shares] == pytest.approx([*accuracy, bias, *loss], abs=0.00051)


def test_decisions_name_their_commit() -> None:
    _, *topics = read("benchmarks/decisions.md").split("\n## ")
    assert len(topics) > 15
    for topic in topics:
        assert re.search(r"^\*Commits? `[0-9a-f]{8}`", topic, re.MULTILINE), topic.splitlines()[0]


def test_decisions_stay_short() -> None:
    assert len(read("benchmarks/decisions.md").split()) <= 6000
