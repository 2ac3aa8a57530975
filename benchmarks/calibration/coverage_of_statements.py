"""How often the realised loss is above the allowed one: coverage, not hope."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from bench import Bench
from page import share, table, verdict, with_error
from scipy import stats
from searched import Searched
from trials import LOSSES, PAPERS, Drawing, certified, population, trial, unseen

from calibration.risk.rule import Rule

HEADING = "Coverage: how often the loss on unseen queries is above δ"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "mixed_large")
K = 5
_ALLOWED = 0.05  # what a statement at 95 % may fail
_STATEMENTS = {
    "risk control at 95 %, policy auto": [certified("auto", "high-probability", loss) for loss in LOSSES],
    "risk control at 95 %, policy similarity": [certified("similarity", "high-probability", loss) for loss in LOSSES],
    "non-inferiority at 95 %, policy similarity": [
        Rule("non-inferiority", "similarity", max_loss=loss) for loss in LOSSES
    ],
}
_EXPECTED = "expected"
_CERTIFIED = [rule for rules in _STATEMENTS.values() for rule in rules]
_CERTIFIED += [certified(policy, "expected-loss", loss) for policy in ("auto", "similarity") for loss in LOSSES]


@dataclass(frozen=True)
class Losses:
    """Of one rule over all splits: queries lost among `judges`, share of splits with a cut."""

    lost: np.ndarray
    judges: int
    cut: float

    def above(self, delta: float) -> float:
        """Share of splits in which the loss is above δ."""
        return float((self.lost > delta * self.judges + 1e-9).mean())

    def above_chance(self, delta: float) -> float:
        """Share of splits with more losses than a true loss of δ gives in 95 % of all samples of this size."""
        return float((self.lost > stats.binom.ppf(1 - _ALLOWED, self.judges, delta)).mean())

    def mean(self) -> tuple[float, float]:
        """Mean loss and its standard error."""
        losses = self.lost / self.judges
        return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses)))


def measure(bench: Bench, searched: Searched, rules: list[Rule], drawing: Drawing) -> dict[Rule, Losses]:
    """Losses of every rule over random splits."""
    work = partial(trial, rules=rules, drawing=drawing, seed=bench.seed)
    done = bench.workers.each(searched, work, bench.splits)
    return {
        rule: Losses(
            np.array([outcomes[column].lost for outcomes, _ in done]),
            done[0][1],
            float(np.mean([outcomes[column].cut for outcomes, _ in done])),
        )
        for column, rule in enumerate(rules)
    }


def section(bench: Bench) -> str:
    """The section of the page."""
    rows: dict[str, list[list[str]]] = {name: [] for name in (*_STATEMENTS, _EXPECTED)}
    sizes = []
    for name in bench.wanted(SETS):
        searched = bench.searched(name, K)
        on_unseen = measure(bench, searched, [PAPERS, *_CERTIFIED], unseen)
        on_truth = measure(bench, searched, [PAPERS, *_CERTIFIED[: -2 * len(LOSSES)]], population)
        for statement, rules in _STATEMENTS.items():
            rows[statement] += [_statement(name, rule, on_unseen[rule], on_truth[rule]) for rule in rules]
        rows[_EXPECTED] += [_mean(name, loss, on_unseen, on_truth[PAPERS]) for loss in LOSSES]
        sizes.append(f"{name} {len(searched.queries):,}")
    return _words(bench.splits, ", ".join(sizes), rows)


def _mean(name: str, loss: float, on_unseen: dict[Rule, Losses], papers_truth: Losses) -> list[str]:
    means = [on_unseen[certified(policy, "expected-loss", loss)].mean() for policy in ("auto", "similarity")]
    papers = on_unseen[PAPERS]
    reached = verdict(reached=all(mean <= loss + 2 * error for mean, error in means))
    row = [name, share(loss, 2), *(with_error(*mean, 4) for mean in means), reached]
    return [*row, with_error(*papers.mean(), 4), share(papers.above(loss)), share(papers_truth.above(loss))]


def _statement(name: str, rule: Rule, on_unseen: Losses, on_truth: Losses) -> list[str]:
    true = on_truth.above(rule.max_loss)
    error = float(np.sqrt(_ALLOWED * (1 - _ALLOWED) / len(on_truth.lost)))
    cells = [on_unseen.above(rule.max_loss), on_unseen.above_chance(rule.max_loss), true]
    reached = verdict(reached=true <= _ALLOWED + 2 * error)
    return [name, share(rule.max_loss, 2), share(1 - on_unseen.cut), *map(share, cells), reached]


def _words(splits: int, sizes: str, rows: dict[str, list[list[str]]]) -> str:
    error = float(np.sqrt(_ALLOWED * (1 - _ALLOWED) / splits))
    text = f"""\
{splits:,} random splits of each set, K = {K}: 70 % of the answerable queries calibrate, 30 % are unseen ({sizes} queries).
A split in which nothing can be certified keeps everything and loses nothing; "no cut" is how often that is.
What a sample of unseen queries loses is not what the policy loses on all queries there could be, so there are three columns:

* **raw**: the loss on the unseen part is above δ. A policy whose true loss is exactly δ does this about half of the time.
* **beyond chance**: more unseen queries are lost than the 95 % quantile of Binomial(unseen, δ), which a policy whose true
  loss is exactly δ exceeds at most 5 % of the time.
* **truth**: the data set is the whole world; as many calibration queries are drawn from it with replacement, and the loss
  over all of it is the true one, so that the statement is tested and no allowance is needed. Target: at most .05, within
  two standard errors (± {share(error)} each, of {splits:,} draws).

Drawn with replacement, some queries come twice, which non-inferiority takes for two queries on one document and counts as
fewer: its third column is lower than it would be in the field.
"""
    header = ["set", "δ", "no cut", "raw", "beyond chance", "truth", "target ≤ .05"]
    for name in [name for name in rows if name != _EXPECTED]:
        text += f"\n### {name[0].upper()}{name[1:]}\n\n{table(header, rows[name])}\n"
    header = [
        "set",
        "δ",
        "auto",
        "similarity",
        "target ≤ δ",
        "papers' rule",
        "its loss > δ, unseen",
        "its loss > δ, truth",
    ]
    return (
        text
        + f"""
### Conformal risk control: the mean loss on unseen queries

The expected loss is promised, so its mean over the splits, ± the simulation's standard error, has to be at most δ within
two of them. The papers' rule promises nothing about δ; it loses what it loses, and with few results dropped that is little.

{table(header, rows[_EXPECTED])}
"""
    )
