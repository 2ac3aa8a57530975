"""Cropped queries beside human ones: writes docs/benchmarks/generated-queries.md and the table that Taugate ships.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import sys

from threadpoolctl import threadpool_limits

from benchmarks.experiment import second_encoder
from benchmarks.generated import accuracy, left_out, thresholds
from benchmarks.generated.plan import GeneratedPlan
from benchmarks.generated.sets import SETS
from benchmarks.generated.shipped import write_shipped
from benchmarks.page import Option, Page, data_folder
from taugate.calibration.encoding.source import DEFAULT_ENCODER

PAGE = Page[GeneratedPlan](
    file="generated-queries.md",
    module="benchmarks.generated",
    title="# Cropped queries, and what a threshold from them is worth",
    introduction="""\
`taugate queries DATA --method crop` makes queries from the documents themselves, for a corpus that nobody has labelled. Each is a
span of 10 % to 50 % of a document's words, of which one in ten is deleted. That is *independent cropping* with the defaults of its
authors (Izacard et al., [Unsupervised Dense Information Retrieval with Contrastive
Learning](https://arxiv.org/abs/2112.09118), 2022). This page measures how far such queries can be trusted. Each public data set is
calibrated on crops of its documents, and judged by the queries that people asked about them.

All figures are shares, from 0 to 1, with K = 5 results a query:

- **Accuracy**: queries with a relevant document among their top 5.
- **Lost**: queries that have a relevant document in their top 5, and none after the cut.
- **Results kept**: how many of the top 5 results pass the threshold.

Ranges in brackets are 95 % intervals, from a bootstrap that draws whole documents. Human queries of all splits of a set count. A set
of more than 1,000 documents gives a seeded sample of 1,000 crops, as by default. The folder `mixed_large` holds several sets:
cranfield, emanual, medquad, msmarco_dl_mini and vaswani_npl come from it, each with its own documents alone. medquad is measured
with one encoder: its 15,811 documents take half an hour to encode.""",
    sections={"accuracy": accuracy, "thresholds": thresholds, "left-out": left_out},
    options=[Option("seed", 0, "of crops, calibrations and intervals")],
    has_sets=True,
)


def _shared() -> str:
    return "All tables of a run share its measurements, and the first table has their time."


def main() -> None:
    """Measure the sets asked for, all by default, and write the page; with all of them, also the shipped table."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    second = second_encoder()
    if second is None:
        sys.exit("install the extra test: the second encoder comes with the package sre-embedding-model")
    if unknown := {*arguments.sets} - {each.name for each in SETS}:
        sys.exit(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in SETS)}")
    sets = [each for each in SETS if not arguments.sets or each.name in arguments.sets]
    encoders = [("all-MiniLM-L6-v2", DEFAULT_ENCODER), ("sre-embedding-model", second)]
    with threadpool_limits(limits=1):
        plan = GeneratedPlan(data_folder(), sets, encoders, arguments.seed)
        for name in arguments.tables:
            PAGE.measure(name, plan, arguments, _shared if len(arguments.tables) > 1 else None)
        if not arguments.sets:
            write_shipped(plan.cases)


if __name__ == "__main__":
    main()
