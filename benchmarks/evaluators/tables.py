"""The tables of benchmarks/results/evaluators.md, by one command.

Needs TAUGATE_DATA, the extras calibration, evaluators, sample and test, and taugate-client with its extra haystack.
"""

import tempfile
from pathlib import Path

from benchmarks.evaluators import ndcg, with_mteb
from benchmarks.evaluators.ndcg import EvaluatorsPlan
from benchmarks.page import Option, Page, data_folder

PAGE = Page[EvaluatorsPlan](
    file="evaluators.md",
    module="benchmarks.evaluators.tables",
    title="# Evaluators that others wrote",
    introduction=f"""\
Two evaluators that know nothing of Taugate measure it over HTTP: mteb {with_mteb.VERSION} through its `SearchProtocol`, and Haystack's
`DocumentNDCGEvaluator` through the [Haystack retriever](../../docs/how-to/clients.md#haystack). Their NDCG@10 is compared with the plain mean of what
the release itself has for each query (`outcomes.safetensors`).

Each set is calibrated with `--k 10 --holdout 0`, so that the release knows every query. mteb asks with `"threshold": -1`, which replaces τ and
turns `calibrated` false: that is how a client searches uncut. The Haystack retriever can only tighten τ. So it gets its uncut results from
a release that keeps everything (`--policy similarity --tau -1`). With τ in force, a query that is left without results counts 0.

mteb rounds its figure to five digits. The differences are those of the mean before it rounds, and the largest of any one query.""",
    sections={"ndcg": ndcg},
    options=[Option("queries", 1000, "of each set, at most"), Option("seed", 0, "of the draw of the queries")],
    has_sets=True,
)


def main() -> None:
    """Evaluate what was asked for, and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        with tempfile.TemporaryDirectory(prefix="taugate-evaluators-") as work:
            plan = EvaluatorsPlan(data_folder(), tuple(arguments.sets), Path(work), **PAGE.numbers(arguments))
            PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
