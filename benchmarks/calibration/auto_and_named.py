"""Compare what `auto` keeps with each policy that could be named, under the same guarantee."""

from functools import partial

import numpy as np

from benchmarks.calibration.trials import LOSSES, certified, trial
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict, with_error
from taugate.calibration.settings.rules import PolicyChoice

HEADING = "Auto and the named policies"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa")
SPLITS = 24
_NAMED: tuple[PolicyChoice, ...] = ("similarity", "relative", "probability")
_RULES = [certified(policy, "high-probability", loss) for policy in (*_NAMED, "auto") for loss in LOSSES]


def section(experiment: Experiment) -> str:
    """Measure `auto` and the named policies on unseen documents."""
    splits, rows, most = experiment.part(SPLITS), [], []
    for name in experiment.wanted(SETS):
        for k in (5, 20):
            work = partial(trial, rules=_RULES, seed=experiment.seed)
            done = experiment.workers.each(experiment.searched(name, k), work, splits)
            kept = np.array([[outcome.kept for outcome in outcomes] for outcomes, _ in done])
            for column, loss in enumerate(LOSSES):
                each = kept[:, column :: len(LOSSES)]  # (splits, policies)
                best = int(each[:, :-1].mean(axis=0).argmin())
                difference = each[:, -1] - each[:, best]
                spread = float(each[:, best].std(ddof=1))
                most.append(float(difference.mean()))
                rows.append(
                    [
                        name,
                        k,
                        share(loss, 2),
                        *(share(float(mean)) for mean in each.mean(axis=0)),
                        _NAMED[best] if each[:, best].mean() < 1 else "nothing certified",
                        with_error(float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(splits))),
                        share(spread),
                        verdict(reached=bool(difference.mean() <= spread)),
                    ]
                )
    header = ["set", "K", "δ", *_NAMED, "auto", "best named", "auto − best", "standard error of a calibration", "≤ 1"]
    return f"""\
Each figure is the mean share of results kept on unseen documents, over {splits} random splits by document, with 95 % confidence. It is 1 where
nothing can be certified. For each row, the best named policy is picked in hindsight, by its mean on the unseen documents. "Auto −
best" has its standard error over the splits.

"Standard error of a calibration" says how much the share kept by the best policy varies from split to split. A single calibration
cannot show a smaller difference. `auto` certifies `probability` and `relative` together and divides the error between them. For
that it keeps at most {share(max(most))} more.

{table(header, rows)}
"""
