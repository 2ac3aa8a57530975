"""Whatever a page tells its reader to install can be installed: from a clone, or from the package index."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import EXTRAS, FOLDERS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "clients" / "python" / "README.md"]
ONCE_PUBLISHED = re.compile(r"<!-- once published -->.*?<!-- end -->", re.DOTALL)
COMMAND = re.compile(r"pip install((?: (?:--?[\w-]+|'[^']+'|[\w./=\[\],-]+))+)")


def named() -> list[str]:
    """Return what pages tell readers to install, without repeats."""
    words = [
        word
        for page in PAGES
        for command in COMMAND.finditer(ONCE_PUBLISHED.sub("", page.read_text(encoding="utf-8")))
        for word in shlex.split(command[1])
        if not word.startswith("-") and not word.endswith("/")  # as in ./plugins/*
    ]
    return [*dict.fromkeys(words)]


@pytest.mark.parametrize("word", [word for word in named() if word.startswith(".")])
def test_folder_of_clone_has_the_extras_that_pages_install(word: str) -> None:
    folder, _, extras = word.removesuffix("]").partition("[")
    assert {*filter(None, extras.split(","))} <= EXTRAS[FOLDERS[folder]]


@pytest.mark.slow
@pytest.mark.parametrize("word", [word for word in named() if not word.startswith(".")])
def test_distribution_that_pages_install_is_in_package_index(word: str) -> None:
    assert not word.startswith("taugate"), "not published: name the folder of the clone"
    name = re.split(r"[\[=]", word)[0]
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", name], capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert word.partition("==")[2] in listed.stdout
