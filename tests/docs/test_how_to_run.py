"""Every code block of the how-to guides runs, in the order of its page."""

from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, run_pages

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


_LONG = {"adapt-the-encoder", "caches-and-routing"}  # they train, or encode 2,000 texts, with PyTorch


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.exhaustive if page.stem in _LONG else ()) for page in PAGES],
    ids=[page.stem for page in PAGES],
)
def test_how_to_page_runs(page: Path, quickstart: Path, taugate: Path | None, tmp_path: Path) -> None:
    run_pages([page], tmp_path, quickstart, taugate)
