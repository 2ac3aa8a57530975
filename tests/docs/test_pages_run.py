"""Every code block of the tutorial, the how-to guides and the other first pages runs, in the order of the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, code_blocks, page_run

DOCS = ROOT / "docs"
# Pages that a reader goes through in one folder.
SEQUENCES = {
    "README": [ROOT / "README.md"],
    "index": [DOCS / "index.md"],
    "tutorial": [DOCS / "tutorial" / "first-ten-minutes.md", DOCS / "tutorial" / "your-own-data.md"],
    "python": [DOCS / "reference" / "python.md"],
    **{page.stem: [page] for page in sorted((DOCS / "how-to").glob("*.md"))},
}
# Where `make quickstart` and `taugate quickstart` themselves run; the other pages begin with a copy of what they write.
QUICKSTARTS = {"README", "tutorial"}


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `taugate quickstart --no-serve` writes."""
    folder = tmp_path_factory.mktemp("once")
    command = [sys.executable, "-m", "taugate", "quickstart", "--no-serve"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder / "quickstart"


@pytest.mark.model
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SEQUENCES)
def test_the_blocks_of_a_page_run(name: str, quickstart: Path, tmp_path: Path) -> None:
    with page_run(tmp_path, None if name in QUICKSTARTS else quickstart) as reader:
        for page in SEQUENCES[name]:
            blocks = code_blocks(page.read_text(encoding="utf-8"))
            assert blocks
            for block in blocks:
                try:
                    reader.run(block)
                except AssertionError as error:
                    pytest.fail(f"{page.name}, line {block.line}: {error}")


def test_every_page_of_the_tutorial_is_in_a_sequence() -> None:
    assert set(SEQUENCES["tutorial"]) == set((DOCS / "tutorial").glob("*.md"))
