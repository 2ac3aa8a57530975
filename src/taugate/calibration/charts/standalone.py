"""A chart as an SVG file of its own, in the colours of the pages, light or dark, with its legend drawn below."""

import re
from importlib.resources import files
from typing import Literal

from markupsafe import Markup

from taugate.calibration.charts.chart import HEIGHT, WIDTH, Figure

Scheme = Literal["light", "dark"]
_SCALE = 1.6  # shown as wide as a column of text
_ROW, _LEFT, _SWATCH = 22.0, 16.0, 34.0
_FONT = 'svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }'
_DRAWN = ("svg text", "svg .", ".line", ".band", ".bar", ".dot", ".mark", ".s-")  # selectors of rules for drawings


def standalone(figure: Figure, scheme: Scheme) -> str:
    """Return a figure as the text of an SVG file, which needs no page, style sheet or font around it.

    Args:
        figure: The drawing with its legend.
        scheme: Of the colours. The background is filled, so that the drawing can be read on any page.
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
    """Take the colours of a scheme and the rules for drawings out of the pages' style sheet."""
    sheet = files("taugate.calibration.charts").joinpath("style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    colours = re.findall(r"--[\w-]+: #\w+;", dark if scheme == "dark" else light)
    rules = [line for line in sheet.splitlines() if line.startswith(_DRAWN)]
    return "\n".join(
        [
            f"svg {{ {' '.join(colours)} }}",
            _FONT,
            ".background { fill: var(--page); }",
            *rules,
            "svg .key { font-size: 13px; }",
        ]
    )
