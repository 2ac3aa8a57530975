"""docs/security.md: each risk of the OWASP API Security Top 10 names tests. docs/access.md: limits match the code."""

import ast
import re
from pathlib import Path

import pytest

from taugate.service.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ACCESS = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
# https://owasp.org/API-Security/editions/2023/en/0x11-t10/
RISKS = [
    "Broken object level authorization",
    "Broken authentication",
    "Broken object property level authorization",
    "Unrestricted resource consumption",
    "Broken function level authorization",
    "Unrestricted access to sensitive business flows",
    "Server side request forgery",
    "Security misconfiguration",
    "Improper inventory management",
    "Unsafe consumption of APIs",
]


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """Return the cells of each row of the table below a heading."""
    section = page.split(f"\n## {heading}\n")[1].partition("\n## ")[0]
    return [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]


def test_page_lists_every_risk() -> None:
    assert [row[0].strip() for row in rows("The OWASP API Security Top 10 (2023)")] == [
        f"API{number} {risk}" for number, risk in enumerate(RISKS, 1)
    ]


def named_tests() -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)


@pytest.mark.parametrize("risk", rows("The OWASP API Security Top 10 (2023)"), ids=lambda row: row[0].split()[0])
def test_risk_row_names_two_tests(risk: list[str]) -> None:
    assert len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", risk[2])) >= 2


@pytest.mark.parametrize("test", named_tests())
def test_named_test_exists(test: str) -> None:
    path, name = test.split("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_limits_match_defaults_of_settings() -> None:
    seen = 0
    for _, limit, setting, _ in rows("Limits", ACCESS):
        variables = [VARIABLES[name.lower()] for name in re.findall(r"`TAUGATE_(\w+)`", setting)]
        options = re.findall(r"`([a-z_]+)` of `(\w+)`", setting)
        for variable in variables + [VARIABLES[name.lower()].options[option] for option, name in options]:
            name, default = variable.names[0], variable.info.default
            assert re.search(rf"(?<![\d.]){re.escape(str(default))}(?![\d.]*\d)", limit), (
                f"{name} is {default}: {limit}"
            )
            seen += 1
    assert seen >= 14
