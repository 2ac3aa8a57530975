"""A chart as a separate SVG file in the light or dark colours of the pages, with its legend below."""

import re
from importlib.resources import files
from typing import Literal

from markupsafe import Markup

from taugate.calibration.charts import HEIGHT, WIDTH, Figure

Scheme = Literal["light", "dark"]
_SCALE = 1.6  # makes the file as wide as a column of text
_ROW, _LEFT, _SWATCH = 22.0, 16.0, 34.0
_FONT = 'svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }'
_CHART_SELECTORS = ("svg text", "svg .", ".line", ".band", ".bar", ".dot", ".mark", ".s-")


def standalone(figure: Figure, scheme: Scheme) -> str:
    """Return a figure as the text of a self-contained SVG file, without style sheet or font.

    The background is filled, so that the chart can be read on any page.
    """
    height = HEIGHT + _ROW * len(figure.keys) + (_ROW / 2 if figure.keys else 0)
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{:.0f}" height="{:.0f}" viewBox="0 0 {:.0f} {:.0f}">'
        '<style>{}</style><rect class="background" width="100%" height="100%" rx="6"/>'
    ).format(_SCALE * WIDTH, _SCALE * height, WIDTH, height, Markup(_style(scheme)))  # noqa: S704 (our own style sheet)
    drawing = str(figure.svg).replace("<svg ", f'<svg width="{WIDTH:.0f}" height="{HEIGHT:.0f}" ', 1)
    legend = Markup("").join(
        Markup('<g transform="translate({:.0f} {:.0f})">{}<text class="key" x="{:.0f}" y="12">{}</text></g>').format(
            _LEFT, HEIGHT + _ROW * row + _ROW / 4, key.sample, _SWATCH + 8, key.text
        )
        for row, key in enumerate(figure.keys)
    )
    return f"{head}{drawing}{legend}</svg>\n"


def _style(scheme: Scheme) -> str:
    """Extract a scheme's colours and the rules for charts from the style sheet of the pages."""
    sheet = files("taugate.calibration.report").joinpath("style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    colours = re.findall(r"--[\w-]+: #\w+;", dark if scheme == "dark" else light)
    rules = [line for line in sheet.splitlines() if line.startswith(_CHART_SELECTORS)]
    return "\n".join(
        [
            f"svg {{ {' '.join(colours)} }}",
            _FONT,
            ".background { fill: var(--page); }",
            *rules,
            "svg .key { font-size: 13px; }",
        ]
    )
