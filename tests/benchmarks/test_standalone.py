"""A chart that leaves the page keeps its legend and its colours."""

from xml.etree import ElementTree

from benchmarks.standalone import standalone
from taugate.calibration.charts import HEIGHT, WIDTH, Axis, Chart, Figure, LegendEntry


def test_standalone_svg_includes_legend_and_colours() -> None:
    chart = Chart("c", "Title & more", "words", Axis(0, 10, "x"), Axis(0, 1, "y", "percent"))
    chart.line([0, 5, 10], [0, 0.5, 1], "s-topk")
    figure = Figure.from_chart(chart, [LegendEntry("line", "s-topk", "one <line>"), LegendEntry("dot", "", "a dot")])
    light, dark = (standalone(figure, scheme) for scheme in ("light", "dark"))
    for text, page in ((light, "#ffffff"), (dark, "#14171b")):
        root = ElementTree.fromstring(text)  # noqa: S314 (our own)
        said = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert said[-2:] == ["one <line>", "a dot"]
        assert f"--page: {page};" in text and ".s-topk" in text and "table" not in text and "url(" not in text
        *_, width, height = map(float, root.get("viewBox", "").split())
        assert width == WIDTH and height > HEIGHT + 2 * 20
    assert light.partition("</style>")[2] == dark.partition("</style>")[2]
