"""Every code block of README, tutorial, how-to guides and the reference of Python runs, in the order of its page."""

from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, run_pages

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

DOCS = ROOT / "docs"
TUTORIAL = [DOCS / "tutorial" / "first-ten-minutes.md", DOCS / "tutorial" / "your-own-data.md"]
LONG = {"adapt-the-encoder"}  # it trains
GUIDES = [
    pytest.param([page], marks=pytest.mark.exhaustive if page.stem in LONG else (), id=page.stem)
    for page in [*sorted((DOCS / "how-to").glob("*.md")), DOCS / "reference" / "python.md"]
]


@pytest.mark.usefixtures("quickstart")  # so that the sample is encoded once; the README runs a quickstart of its own
def test_readme_runs(taugate: Path | None, tmp_path: Path) -> None:
    run_pages([ROOT / "README.md"], tmp_path, taugate=taugate)


@pytest.mark.parametrize("pages", [pytest.param(TUTORIAL, id="tutorial"), *GUIDES])
def test_pages_run(pages: list[Path], quickstart: Path, taugate: Path | None, tmp_path: Path) -> None:
    run_pages(pages, tmp_path, quickstart, taugate)


def test_tutorial_has_every_page() -> None:
    assert set(TUTORIAL) == set((DOCS / "tutorial").glob("*.md"))
