"""Thresholds that people really set, beside the one that Taugate certifies: writes benchmarks/results/guesses.md.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import sys

from threadpoolctl import threadpool_limits

from benchmarks.experiment import second_encoder
from benchmarks.guesses import thresholds
from benchmarks.guesses.thresholds import SETS, GuessesPlan
from benchmarks.page import Option, Page, data_folder
from taugate.calibration.encoding.source import DEFAULT_ENCODER

PAGE = Page[GuessesPlan](
    file="guesses.md",
    module="benchmarks.guesses",
    title="# Thresholds that people set, and what they cost",
    introduction="""\
A similarity threshold drops the results that score below it. Guides and defaults name a number for it, without having seen your
data. This page measures these numbers on five public data sets with two encoders. Beside them stand the cut that
`taugate calibrate --max-loss 0.02 --refuse off` chooses for each case, and τ and ρ of `taugate calibrate` alone. Both leave out shared
words (`--lexical off`).

All figures are shares of queries, in percent or from 0 to 1, with K = 5 results a query:

- **Results kept**: how many of the top 5 results a rule passes on. Fewer is better, if no answer is lost.
- **Answers lost**: questions that had a relevant result in their top 5, and have none after the cut.
- **Only wrong results**: questions that have an answer in the corpus, but get results of which none is relevant.
- **Unanswerable, yet answered**: questions without any answer in the corpus that get results all the same. Only squad_v2_dev
  has such questions.

Taugate chooses its cut on 70 % of the queries. Every rule is judged on the other 30 %, and on all unanswerable questions, none
of which had a say. The ranges in brackets are 95 % intervals. They come from a bootstrap that draws whole documents, as one
document may lose all its questions at once. If all questions come out alike, the bootstrap has no width.""",
    sections={"thresholds": thresholds},
    options=[Option("seed", 0, "of the calibrations and of the intervals")],
    has_sets=True,
)


def main() -> None:
    """Measure the sets asked for, all five by default, and write the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    second = second_encoder()
    if second is None:
        sys.exit("install the extra test: the second encoder comes with the package sre-embedding-model")
    encoders = [("all-MiniLM-L6-v2", DEFAULT_ENCODER), ("sre-embedding-model", second)]
    with threadpool_limits(limits=1):
        plan = GuessesPlan(data_folder(), arguments.sets or SETS, encoders, arguments.seed)
        PAGE.measure("thresholds", plan, arguments)


if __name__ == "__main__":
    main()
