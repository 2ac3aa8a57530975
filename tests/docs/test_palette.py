"""One palette: playground, report and the plots of the site have the same colours, light and dark."""

import re
from pathlib import Path

import pytest

import taugate

PACKAGE = Path(taugate.__file__).parent
SITE = Path(__file__).parents[2] / "docs/stylesheets/site.css"
# The name of each colour in the playground, in the report, and its number among the plots of the site.
COLOURS = [
    ("accent", "blue", 0),
    ("orange", "orange", 1),
    ("quiet", "soft", 4),
    ("ink", "text", None),
    ("line", "rule", None),
    ("warn-tint", "warn", None),
    ("warn-edge", "warn-edge", None),
]


def _declared(path: Path, name: str) -> list[str]:
    """Return the values of a variable in a style sheet, of the light scheme and of the dark one."""
    return re.findall(rf"--{name}: (#[0-9a-f]{{6}})", path.read_text())


@pytest.mark.parametrize(("playground", "report", "plot"), COLOURS)
def test_style_sheets_share_colour(playground: str, report: str, plot: int | None) -> None:
    colour = _declared(PACKAGE / "service/api/page.css", playground)
    assert len(colour) == 2
    assert colour == _declared(PACKAGE / "calibration/report/style.css", report)
    if plot is not None:
        assert colour == re.findall(rf"\.plot-{plot} {{ --plot: (#[0-9a-f]{{6}})", SITE.read_text())
