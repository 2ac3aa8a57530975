"""Check the promise of conformal risk control: the mean loss on unseen queries."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.calibration.trials import LOSSES, PAPERS, certified, trial
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict, with_error
from benchmarks.searched import SearchedSplit
from taugate.evidence.rules import PolicyChoice, ThresholdRule

HEADING = "Conformal risk control: the mean loss on unseen queries"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "mixed_large")
K = 5
_POLICIES: tuple[PolicyChoice, ...] = ("auto", "similarity")


@dataclass(frozen=True)
class LossesBySplit:
    """Losses of one rule over all splits.

    Attributes:
        lost: Queries lost among those that judge.
        judges: How many judge; (splits,) each.
    """

    lost: np.ndarray
    judges: np.ndarray

    def above(self, delta: float) -> float:
        """Return the share of splits in which the loss is above δ."""
        return float((self.lost > delta * self.judges + 1e-9).mean())

    def mean(self) -> tuple[float, float]:
        """Mean loss and its standard error."""
        losses = self.lost / self.judges
        return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses)))


def section(experiment: Experiment) -> str:
    """Measure the mean loss on unseen queries over random splits."""
    rules = [PAPERS, *(certified(policy, "expected-loss", loss) for policy in _POLICIES for loss in LOSSES)]
    rows, sizes = [], []
    for name in experiment.wanted(SETS):
        searched = experiment.searched(name, K)
        found = _measure(experiment, searched, rules)
        rows += [_row(name, loss, found) for loss in LOSSES]
        sizes.append(f"{name} {len(searched.queries):,}")
    header = ["set", "δ", *_POLICIES, "target ≤ δ", "papers' rule", "its loss > δ"]
    return f"""\
Each set is split at random {experiment.splits:,} times, with K = {K}: 70 % of the answerable queries calibrate, and 30 % are unseen. Queries that
share a document stay on one side. The sets have {", ".join(sizes)} queries.

Conformal risk control promises the mean loss. So the mean over the splits, less two standard errors of the simulation (±), must not
exceed δ. The papers' rule promises nothing about δ. It drops few results, so it loses little. [evidence.md](evidence.md) checks
the statements with 95 % confidence.

{table(header, rows)}
"""


def _measure(
    experiment: Experiment, searched: SearchedSplit, rules: list[ThresholdRule]
) -> dict[ThresholdRule, LossesBySplit]:
    work = partial(trial, rules=rules, seed=experiment.seed)
    done = experiment.workers.each(searched, work, experiment.splits)
    judges = np.array([count for _, count in done])
    return {
        rule: LossesBySplit(np.array([outcomes[column].lost for outcomes, _ in done]), judges)
        for column, rule in enumerate(rules)
    }


def _row(name: str, loss: float, found: dict[ThresholdRule, LossesBySplit]) -> list[str]:
    means = [found[certified(policy, "expected-loss", loss)].mean() for policy in _POLICIES]
    reached = verdict(reached=all(mean <= loss + 2 * error for mean, error in means))
    papers = found[PAPERS]
    row = [name, share(loss, 2), *(with_error(*mean, 4) for mean in means), reached]
    return [*row, with_error(*papers.mean(), 4), share(papers.above(loss))]
