"""Accuracy on cropped queries and on human ones, as a table and as a picture."""

from collections.abc import Sequence
from typing import get_args

from benchmarks.checkout import ROOT
from benchmarks.generated.cases import Case
from benchmarks.generated.plan import GeneratedPlan, cell
from benchmarks.markdown import share, table
from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.standalone import Scheme, standalone

HEADING = "Accuracy on cropped queries and on human ones"
_FOLDER = ROOT / "docs" / "images"
_NAME = "generated-accuracy"
_HEADER = [
    "set",
    "documents",
    "cropped queries",
    "human queries",
    "relevant documents of a human query",
    "accuracy@5, cropped",
    "accuracy@5, human",
    "bias",
]


def section(plan: GeneratedPlan) -> str:
    """Measure every set with every encoder, draw the picture, and return the tables as Markdown."""
    cases = plan.cases
    easier = sum(case.accuracy_bias > 0 for case in cases)
    _draw(cases)
    tables = "\n\n".join(
        f"### {encoder}\n\n{_table([case for case in cases if case.encoder == encoder])}"
        for encoder, _ in plan.encoders
    )
    return f"""\
*Bias* is accuracy on cropped queries less accuracy on human ones. It is above 0 in {easier} of the {len(cases)} cases: a crop uses the words
of its document, and people use their own. It is below 0 in the others. A crop has one relevant document, the one it comes from. So it
is the harder query where documents repeat each other's sentences, as in medquad, or where human queries have many relevant documents.

![Accuracy on human queries by accuracy on cropped ones](../images/{_NAME}-light.svg#only-light)
![Accuracy on human queries by accuracy on cropped ones](../images/{_NAME}-dark.svg#only-dark)

Each dot is a data set with one encoder. On the dotted line, cropped queries are as hard as human ones. Below it, they are easier.

{tables}
"""


def _table(cases: Sequence[Case]) -> str:
    return table(
        _HEADER,
        (
            [
                case.name,
                f"{case.documents:,}",
                f"{case.generated:,}",
                f"{case.human:,}",
                f"{case.relevant:.1f}",
                cell(case.accuracy_generated),
                cell(case.accuracy_human),
                share(case.accuracy_bias),
            ]
            for case in cases
        ),
    )


def _draw(cases: Sequence[Case]) -> None:
    """Write the picture in both colour schemes."""
    chart = Chart(
        "accuracy",
        "Accuracy on human queries by accuracy on cropped ones",
        "A dot for each data set and encoder, with the diagonal on which both accuracies are equal.",
        Axis(0.0, 1.0, "accuracy@5 on cropped queries"),
        Axis(0.0, 1.0, "accuracy@5 on human queries"),
    )
    chart.line([0, 1], [0, 1], "guess")
    marks = {encoder: "ABC"[place] for place, encoder in enumerate(dict.fromkeys(case.encoder for case in cases))}
    chart.dots(
        [
            Dot(
                case.accuracy_generated.mean,
                case.accuracy_human.mean,
                marks[case.encoder],
                f"{case.name}, {case.encoder}",
            )
            for case in cases
        ]
    )
    keys = [
        LegendEntry("line", "guess", "cropped queries as hard as human ones"),
        *(LegendEntry("dot", "", f"{marked}: {encoder}") for encoder, marked in marks.items()),
    ]
    for scheme in get_args(Scheme):
        (_FOLDER / f"{_NAME}-{scheme}.svg").write_text(
            standalone(Figure.from_chart(chart, keys), scheme), encoding="utf-8"
        )
