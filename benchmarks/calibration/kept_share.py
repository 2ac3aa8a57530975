"""Compare how many results each policy passes on under the same guarantee."""

from functools import partial

import numpy as np

from benchmarks.calibration.trials import LOSSES, PAPERS, certified, trial, unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict, with_error
from taugate.calibration.settings.rules import PolicyChoice
from taugate.retrieval.release.evidence import Statement

HEADING = "Share of results kept"
# The column "score / best score" of the measurements that set the targets: similarity of all-MiniLM-L6-v2, the cut
# picked on all queries at a loss of 1 / 2 / 5 %.
RELATIVE = {
    ("squad_v2_dev", 5): (0.72, 0.62, 0.49),
    ("pubmedqa_labelled", 5): (0.21, 0.20, 0.20),
    ("covidqa_chunks", 5): (0.92, 0.84, 0.73),
    ("scifact/train", 5): (0.87, 0.71, 0.56),
    ("cosqa", 5): (0.89, 0.85, 0.72),
    ("squad_v2_dev", 20): (0.56, 0.45, 0.29),
    ("pubmedqa_labelled", 20): (0.06, 0.05, 0.05),
    ("covidqa_chunks", 20): (0.91, 0.87, 0.68),
    ("scifact/train", 20): (0.79, 0.63, 0.44),
    ("cosqa", 20): (0.78, 0.69, 0.57),
}
SETS = (*(name for name, k in RELATIVE if k == 5), "mixed_large", "squadshifts_new_wiki", "squadshifts_reddit")
SPLITS = 100
_LARGE = 5000  # queries from which the 95 % statement must come within .08
_CERTIFIED: tuple[tuple[PolicyChoice, Statement], ...] = (
    ("similarity", "expected-loss"),
    ("relative", "expected-loss"),
    ("probability", "expected-loss"),
    ("auto", "expected-loss"),
    ("auto", "high-probability"),
)
_RULES = [PAPERS, *(certified(policy, guarantee, loss) for policy, guarantee in _CERTIFIED for loss in LOSSES)]
Kept = dict[tuple[str, int], np.ndarray]  # (splits, rules) of each set and K


def section(experiment: Experiment) -> str:
    """Measure each policy on unseen queries over random splits, and compare with the targets."""
    kept: Kept = {}
    sizes: dict[str, int] = {}
    splits = experiment.part(SPLITS)
    for name in experiment.wanted(SETS):
        for k in (5, 20):
            searched = experiment.searched(name, k)
            sizes[name] = len(searched.queries)
            done = experiment.workers.each(
                searched, partial(trial, rules=_RULES, drawing=unseen, seed=experiment.seed), splits
            )
            kept[name, k] = np.array([[outcome.kept for outcome in outcomes] for outcomes, _ in done])
    header = ["set", "K", "δ", "papers' rule", "similarity", "relative", "probability", "auto", "auto, 95 %"]
    header += ["relative, measured before", "target ≤ + .02"]
    rows = [_row(name, k, column, each) for (name, k), each in kept.items() for column in range(len(LOSSES))]
    return f"""\
Each figure is the mean over {splits} random splits, measured on unseen queries, ± the standard error of the simulation. 70 % of the queries
calibrate. The last policy holds with 95 % confidence; the others limit the expected loss.

All calibration queries certify `similarity` and `relative`. Those that did not fit the model certify `probability`. Those that
neither fitted the model nor chose the policy certify `auto`. If nothing can be certified, everything is kept. The papers' rule
does not use δ, so its figure is the same in all three rows. "Measured before" is too good: its cut was picked on the same queries
that measured it.

{table(header, rows)}

{_targets(kept, sizes)}
"""


def _column(kept: np.ndarray, policy: int, loss: int) -> np.ndarray:
    return kept[:, 1 + policy * len(LOSSES) + loss]


def _row(name: str, k: int, loss: int, kept: np.ndarray) -> list[str]:
    columns = [kept[:, 0], *(_column(kept, policy, loss) for policy in range(5))]
    cells = [with_error(column.mean(), column.std(ddof=1) / np.sqrt(len(column))) for column in columns]
    row = [name, str(k), share(LOSSES[loss], 2), *cells]
    if (name, k) not in RELATIVE:
        return [*row, "", ""]
    target = RELATIVE[name, k][loss]
    return [*row, share(target, 2), verdict(reached=columns[4].mean() <= target + 0.02)]


def _targets(kept: Kept, sizes: dict[str, int]) -> str:
    """The targets over several cells."""
    before = {key: each for key, each in kept.items() if key in RELATIVE}
    gains = {
        (*key, loss): RELATIVE[key][loss] - _column(each, 3, loss).mean()
        for key, each in before.items()
        for loss in range(len(LOSSES))
    }
    deep = [gain for (_, k, _), gain in gains.items() if k == 20]
    fewer = [1 - _column(each, 3, 0).mean() / each[:, 0].mean() for (_, k), each in before.items() if k == 20]
    rows = [
        [
            "auto ≤ relative measured before + .02",
            f"{sum(gain >= -0.02 for gain in gains.values())} of {len(gains)} cells",
            verdict(reached=min(gains.values(), default=0) >= -0.02),
        ],
        [
            "auto better than it by ≥ .03 on at least half of the cells with K = 20",
            f"{sum(gain >= 0.03 for gain in deep)} of {len(deep)} cells",
            verdict(reached=2 * sum(gain >= 0.03 for gain in deep) >= len(deep)),
        ],
        [
            "at 1 %, K = 20, auto passes on at least 30 % fewer results than the papers' rule, mean over the sets",
            f"{100 * np.mean(fewer or [0]):.0f} % ({', '.join(f'{100 * each:.0f}' for each in fewer)})",
            verdict(reached=bool(fewer) and np.mean(fewer) >= 0.3),
        ],
    ]
    for (name, k), each in kept.items():
        if sizes[name] >= _LARGE:
            costs = [(_column(each, 4, loss) - _column(each, 3, loss)).mean() for loss in range(len(LOSSES))]
            what = f"95 % statement − expected loss ≤ .08, {name}, K = {k}, δ = 1 / 2 / 5 %"
            rows.append([what, " / ".join(share(cost) for cost in costs), verdict(reached=max(costs) <= 0.08)])
    return table(["target", "figure", ""], rows)
