"""Every table of docs/benchmarks/adapt.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test; the sections paper and questions also adaptation and
generate. Embeddings come through the project's own cache. Every section is printed and written when it is measured:
some can be measured on one machine and some on another, each with a --page of its own, which --join then brings
together.
"""

from pathlib import Path

from benchmarks.adapt import (
    crops,
    false_admissions,
    labels,
    labels_long,
    other_encoder,
    paper,
    questions,
    refused,
    served,
    similarities,
)
from benchmarks.adapt.trials import AdaptPlan
from benchmarks.page import Option, Page, data_folder

PAGE = Page[AdaptPlan](
    file="adapt.md",
    module="benchmarks.adapt.tables",
    title="# Adapted encoders: what a minute gains",
    introduction="""\
`taugate adapt` learns a linear map of an encoder's embeddings ([how to](../how-to/adapt-the-encoder.md)). This page measures what that gains
on public data sets, with the 64 steps that `--budget 1m` allows on two free cores. Half of the documents are learned from, 15 % choose, and
35 % are unseen: each seed divides them anew, by whole documents.

Gains are points of NDCG@10 of the average unseen query, searched in the whole corpus: the mean over the seeds, with the lowest and the
highest. *Units* are what the gate counts as independent draws. The learning rate, the temperature and the rule that chooses the exponent
come from trials on covidqa_chunks, squadshifts_reddit and cosqa. So the gains on these three are a little optimistic. Nothing was chosen on
the other sets.""",
    sections={
        "labels": labels,
        "labels-long": labels_long,
        "similarities": similarities,
        "crops": crops,
        "questions": questions,
        "encoder": other_encoder,
        "refused": refused,
        "false": false_admissions,
        "served": served,
        "paper": paper,
    },
    needs_data={"labels", "labels-long", "similarities", "crops", "questions", "encoder", "refused", "false", "paper"},
    options=[
        Option("splits", 5, "seeds of each data set", {"labels", "labels-long", "crops", "encoder", "refused"}),
        Option("seed", 0, "first of these seeds"),
        Option("minutes", 10, "budget of an adaptation by every recipe", {"labels-long"}),
        Option(
            "counted", 0, "steps of each of these recipes in place of the minutes, 0 for the minutes", {"labels-long"}
        ),
        Option("runs", 200, "adaptations whose truth is known", {"false"}),
        Option("questions", 2000, "documents that a language model is asked about", {"questions"}),
        Option("steps", 1024, "steps of each training of the paper's comparison", {"paper"}),
        Option("documents", 0, "passages of each set of the paper's comparison, 0 for all", {"paper"}),
    ],
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--join", nargs="+", type=Path, help="take the sections of these pages, and measure nothing")
    arguments = PAGE.parse(parser)
    if arguments.join:
        PAGE.join(arguments.join, arguments.page)
        return
    for name in arguments.tables:
        PAGE.measure(name, AdaptPlan(data_folder(), **PAGE.numbers(arguments)), arguments)


if __name__ == "__main__":
    main()
