"""Every table of docs/benchmarks/label-checks.md: what the checks of labels find where the truth is known.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import sys

from threadpoolctl import threadpool_limits

from benchmarks.label_checks import copies, errors
from benchmarks.label_checks.plan import TRIED, LabelCheckPlan
from benchmarks.page import Option, Page, data_folder

PAGE = Page[LabelCheckPlan](
    file="label-checks.md",
    module="benchmarks.label_checks.tables",
    title="# What the checks of labels find",
    introduction="""\
`taugate calibrate` looks for three faults in labelled queries: questions that copy their document, answers that the corpus repeats, and
labels that are probably wrong. It warns of the first two, and `report.html` lists twenty labels to judge again. This page tries the
checks where the truth is known, with all-MiniLM-L6-v2 and K = 5.

All limits were chosen on cosqa, covidqa_chunks, pubmedqa_labelled, scifact and squad_v2_dev. The other sets had no say and are marked
*unseen*. All of them are in English: nothing is measured of languages without spaces between words, where a letter stands for a
word.""",
    sections={"copies": copies, "errors": errors},
    options=[
        Option("draws", 20, "of labels that are moved", {"errors"}),
        Option("seed", 0, "of every random choice"),
    ],
    has_sets=True,
)


def main() -> None:
    """Measure the sections asked for, and write them to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    if unknown := {*arguments.sets} - {each.name for each in TRIED}:
        sys.exit(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in TRIED)}")
    sets = [each for each in TRIED if not arguments.sets or each.name in arguments.sets]
    with threadpool_limits(limits=1):
        plan = LabelCheckPlan(data_folder(), sets, arguments.draws, arguments.seed)
        for name in arguments.tables:
            PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
