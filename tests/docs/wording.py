"""Check the words of code and pages: `make lint` runs it as `python -m tests.docs.wording`.

Counts names that say nothing about a value, words that make prose harder to read, and long names of tests. The limits
are what well-known Python projects stay below. `--files N` lists the N files with the most findings.
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VAGUE = re.compile(
    "_*(?:each|found|asked|given|known|told|said|wanted|others|rest|own|here|there|made|most|least|few|more|whole|one|wrong)"
)
WHERE = re.compile(r"\bwhere\b", re.IGNORECASE)
NOBODY = re.compile(r"\b(?:nobody|whoever|somebody|anybody)\b", re.IGNORECASE)
PRONOUN = re.compile(r"test_(?:it|they|what|so|others?|both|each|its|neither|that|this)_")


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables and parameters, once for each place that binds them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def names_of_tests(source: str) -> Iterator[str]:
    """Yield the names of the test functions of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def per_thousand(pattern: re.Pattern[str], texts: Sequence[str]) -> float:
    """Return the matches in the texts for each thousand of their words."""
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts)
    return 1000 * sum(len(pattern.findall(text)) for text in texts) / max(words, 1)


def main() -> int:
    """Print each figure with its limit; returns 1 if one is exceeded, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.wording", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=int, default=0, metavar="N", help="list the N files with the most findings")
    arguments = parser.parse_args()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for name in listed.splitlines() if (path := ROOT / name).is_file() and not path.is_symlink()]
    sources = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py"}
    tests = {path: text for path, text in sources.items() if "tests" in path.relative_to(ROOT).parts}
    product = {path: sources[path] for path in sources.keys() - tests.keys()}
    product = {
        path: text for path, text in product.items() if path.parts[len(ROOT.parts)] not in ("benchmarks", "typings")
    }
    pages = [path.read_text(encoding="utf-8") for path in paths if path.suffix == ".md" and "LICENSE" not in path.name]
    variables, vague, findings, texts = 0, 0, Counter[Path](), []
    for path, source in product.items():
        names, words = [*bindings(ast.parse(source))], [*prose(source)]
        nothing = sum(VAGUE.fullmatch(name) is not None for name in names)
        findings[path] = nothing + sum(len(WHERE.findall(text)) + len(NOBODY.findall(text)) for text in words)
        variables, vague, texts = variables + len(names), vague + nothing, texts + words
    named = [name for source in tests.values() for name in names_of_tests(source)]
    figures = [
        ("names of variables that say nothing, %", 100 * vague / variables, 0.5),
        ("'where' in 1,000 words of docstrings and comments", per_thousand(WHERE, texts), 1.5),
        ("'nobody', 'whoever', … in 1,000 words of them", per_thousand(NOBODY, texts), 0.1),
        ("'where' in 1,000 words of pages", per_thousand(WHERE, pages), 2.0),
        ("words in the name of a test, median", statistics.median(name.count("_") for name in named), 5),
        (
            "names of tests that begin with a pronoun, %",
            100 * sum(map(bool, map(PRONOUN.match, named))) / len(named),
            0.5,
        ),
    ]
    for figure, value, limit in figures:
        sys.stdout.write(f"{'ok  ' if value <= limit else 'OVER'} {figure}: {value:.2f} (limit {limit})\n")
    for path, count in findings.most_common(arguments.files):
        sys.stdout.write(f"{count:5} {path.relative_to(ROOT)}\n")
    return int(any(value > limit for _, value, limit in figures))


if __name__ == "__main__":
    sys.exit(main())
