"""Every table of docs/benchmarks/adapt.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.adapt import crops, false_admissions, labels, other_encoder, refused, served
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
        "crops": crops,
        "encoder": other_encoder,
        "refused": refused,
        "false": false_admissions,
        "served": served,
    },
    needs_data={"labels", "crops", "encoder", "refused", "false"},
    options=[
        Option("splits", 5, "seeds of each data set", ("labels", "crops", "encoder", "refused")),
        Option("seed", 0, "first of these seeds"),
        Option("runs", 200, "adaptations whose truth is known", ("false",)),
    ],
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        PAGE.measure(name, AdaptPlan(data_folder(), **PAGE.numbers(arguments)), arguments)


if __name__ == "__main__":
    main()
