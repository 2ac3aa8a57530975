"""The README's picture: drawn from a release, the same each time, and the committed one is of the same kind."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.calibration.similarity_images import draw
from benchmarks.checkout import ROOT
from taugate.registry.catalog import current_id
from taugate.retrieval.release.verify import verify


def texts(picture: Path) -> list[str]:
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314 (our own)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_release_is_drawn_in_both_schemes_with_its_threshold(releases: Path, tmp_path: Path) -> None:
    release = releases / (current_id(releases) or "")
    light, dark = draw(release, tmp_path)
    assert (light.name, dark.name) == ("similarity-light.svg", "similarity-dark.svg")
    tau = verify(release).policy.tau
    assert f"τ = {tau:.4f}" in texts(light) == texts(dark)
    before = light.read_bytes()
    assert draw(release, tmp_path)[0].read_bytes() == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_committed_pictures_are_drawn_by_this_code(releases: Path, tmp_path: Path, scheme: str) -> None:
    """All but the numbers, which come from the real encoder."""
    draw(releases / (current_id(releases) or ""), tmp_path)
    name = f"similarity-{scheme}.svg"
    committed, here = ((folder / name).read_text(encoding="utf-8") for folder in (ROOT / "docs" / "images", tmp_path))
    again = "run `python -m benchmarks.calibration.similarity_images`"
    assert committed.partition("</style>")[0] == here.partition("</style>")[0], again
    assert texts(ROOT / "docs" / "images" / name)[-4:] == texts(tmp_path / name)[-4:], again
