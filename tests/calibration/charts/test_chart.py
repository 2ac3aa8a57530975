"""A chart draws points where they belong, its axes have round ticks, and numbers are written one way."""

from xml.etree import ElementTree

import numpy as np
import pytest

from taugate.calibration.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Chart, Dot
from taugate.calibration.progress import brief, fixed, percent, signed


def test_chart_places_points_and_labels() -> None:
    chart = Chart("c", "title", "words", Axis(0, 10, "x"), Axis(0, 1, "y", "percent"))
    assert chart.at(0, 0) == (LEFT, BOTTOM) and chart.at(10, 1) == (RIGHT, TOP)
    chart.line([0, 5, 10], [0, 0.5, 1], "s")
    chart.dots([Dot(5, 0.5, "1", "here"), Dot(5.1, 0.5, "2", "there")])
    drawing = ElementTree.fromstring(chart.svg())  # noqa: S314 (our own)
    middle = f"{(LEFT + RIGHT) / 2:.1f} {(TOP + BOTTOM) / 2:.1f}"
    (line,) = (each for each in drawing.iter("path") if each.get("class") == "line s")
    assert line.get("d") == f"M{LEFT:.1f} {BOTTOM:.1f}L{middle}L{RIGHT:.1f} {TOP:.1f}"
    first, second = drawing.iter("circle")
    assert f"{first.get('cx')} {first.get('cy')}" == middle
    labels = {each.text: (float(each.get("x", 0)), float(each.get("y", 0))) for each in drawing.iter("text")}
    assert np.hypot(*np.subtract(labels["1"], labels["2"])) > 14
    assert second.find("title").text == "there"  # type: ignore[union-attr]


def test_axis_ticks_are_round() -> None:
    assert [text for _, text in Axis(0, 0.1, "loss", "percent").ticks()] == ["0 %", "2 %", "4 %", "6 %", "8 %", "10 %"]
    assert [text for _, text in Axis(-0.25, 0.31, "x").ticks()] == ["-0.2", "-0.1", "0.0", "0.1", "0.2", "0.3"]
    assert [text for _, text in Axis(0.0005, 0.97, "p", odds=True).ticks()] == ["0.001", "0.01", "0.1", "0.5", "0.9"]
    odds = Axis(0.01, 0.99, "p", odds=True)
    assert odds.place(0.5, 0, 100) == pytest.approx(50) and odds.place(0.01, 0, 100) == 0
    for value in (0.0, 1.0, -3.0, 1e-9):
        axis = Axis.around([value, value], "x")
        assert axis.low < value < axis.high and 0 < axis.place(value, 0, 100) < 100 and axis.ticks()


def test_number_formats() -> None:
    assert (fixed(-0.00001), fixed(None), signed(0.0), signed(-0.00001)) == ("0.0000", "–", "0.0000", "0.0000")
    assert (signed(0.5, 1), signed(-2, 0), percent(0.12345), brief(9999), brief(12345)) == (
        "+0.5", "-2", "12.3\u00a0%", "9,999", "12k"
    )  # fmt: skip
