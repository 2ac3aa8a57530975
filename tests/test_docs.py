"""The documentation matches the code: settings, version, commands, dependencies and links."""

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy.settings_page import page as settings_page
from taugate.calibration.settings import CalibrationSettings
from taugate.cli import main as cli
from taugate.service.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "taugate"
_PACKAGES = "|".join(sorted(folder.parent.name for folder in PACKAGE.glob("*/__init__.py")))
PAGES = sorted(
    [
        *(ROOT / "README.md", ROOT / "CHANGELOG.md"),
        *(path for folder in ("docs", "benchmarks") for path in (ROOT / folder).rglob("*.md")),
    ]
)


def test_settings_page_matches_declarations() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert settings_page(page) == page, "docs/settings.md is out of date: make settings"


def test_settings_page_describes_every_setting() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(TAUGATE_\w+)` \| (.+?) \| (.{12,}) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == [variable.name for variable in VARIABLES.values()]
    shown = {name: default for name, default, _ in rows}
    assert (shown["TAUGATE_MAX_K"], shown["TAUGATE_REDIS_URL"], shown["TAUGATE_DRIFT"]) == ("100", "–", "True")
    assert shown["TAUGATE_WORKERS"] == "one per four processors; one if there is a GPU"


def test_version_matches_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    released = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released[0] == project["version"]


def test_dependencies_are_justified_and_pinned() -> None:
    requirements: list[str] = []
    for file in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")):
        pyproject = tomllib.loads(file.read_text(encoding="utf-8"))
        extras = pyproject["project"].get("optional-dependencies", {})
        requirements += pyproject["project"]["dependencies"]
        requirements += itertools.chain(*extras.values(), *pyproject.get("dependency-groups", {}).values())
    names = {re.split(r"[<>=\[;]", requirement)[0] for requirement in requirements} - {"taugate"}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert {name for name in names if name not in page} == set()
    assert {name for name in names if name.replace("_", "-") not in pinned} == {"faiss-gpu"}


def test_constraints_are_only_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_make_targets_of_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set()
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # of earlier versions
            continue
        text = page.read_text(encoding="utf-8")
        named.update(re.findall(r"`make ([a-z-]+)", text))
        for block in re.findall(r"```.*?```", text, re.DOTALL):
            named.update(re.findall(r"^make ([a-z-]+)", block, re.MULTILINE))
    assert {"quickstart", "test", "guesses"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    paths = re.findall(rf"`((?:{_PACKAGES}|tests|plugins|deploy|docs)/[\w./-]+)`", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [path for path in paths if not (ROOT / path).exists() and not (PACKAGE / path).exists()]
    assert missing == []


COMMANDS = [
    *("calibrate", "serve", "quickstart", "release list", "release show", "release verify", "release promote"),
    *("release diff", "release rollback", "release history", "release shadow", "release prune"),
    "release erase",
    *("release sign", "release push", "release pull", "drift replay", "drift baseline", "key new", "completion"),
    "settings",
    "recalibrate",
    "run",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--help"]) == 0
    assert "usage: taugate" in capsys.readouterr().out


@pytest.mark.parametrize(
    "shown",
    [
        r"\[bootstrapped search\]\(docs/thresholds",
        r"^\| τ\(ψ\) \|.*`taugate_release_psi`",
        r"^\| query-PCA \| .*\]\(docs/gate\.md#query-pca\).*`projection = \"auto\"`",
        r"\[versioned artifact\]\(docs/calibration",
        r"in a FAISS index",
        r"\[a GPU\]\(docs/operations\.md#run-on-a-gpu\)",
        r"^\| COE, ROE \|.*`/metrics` \(`taugate_coe`, `taugate_roe`\)",
        r"Grafana: \*Taugate: drift\* and \[alerts\]\(docs/drift\.md#alert-on-drift\)",
        r"\[`taugate recalibrate`\]\(docs/how-to/recalibrate",
    ],
)
def test_readme_leads_to_each_part_of_method(shown: str) -> None:
    """That the targets of links exist is tested for every page."""
    assert re.search(shown, (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_commands_of_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    actions = "list|show|verify|promote|rollback|history|shadow|prune|erase|diff|sign|push|pull|replay|baseline|new"
    shown = re.findall(rf"^taugate ([a-z]+(?: (?:{actions}))?)\b", readme, re.MULTILINE)
    assert len(shown) >= 3
    assert set(shown) <= set(COMMANDS)


def test_calibrate_defaults_match_contract() -> None:
    default = CalibrationSettings()
    assert (default.split, default.k, default.bootstraps, default.sample_size) == (None, 5, 500, 100)
    assert (default.seed, default.holdout, default.overlap_percentile) == (0, 0.3, 5)


def test_module_runs_like_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "taugate", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"taugate \d+\.\d+\.\d+\n", shown.stdout)
