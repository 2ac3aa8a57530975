"""Compare ways to divide the calibration queries between fitting and certifying."""

from functools import partial

import numpy as np

from benchmarks.calibration.trials import LOSSES, certified, unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.searched import SearchedSplit
from taugate.calibration.metrics.measure import Resamples
from taugate.calibration.metrics.splits import SHARES, QueryRoles
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import decide_policy
from taugate.retrieval.policy.policy import keep

HEADING = "Three parts of the calibration queries"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa")
SPLITS = 40
_TRIED = (SHARES, (0.35, 0.05), (0.4, 0.05), (0.5, 0.05), (0.35, 0.15), (0.25, 0.15))
_K = 20
_RULES = [certified("auto", "expected-loss", loss) for loss in LOSSES]


def section(experiment: Experiment) -> str:
    """Measure what `auto` keeps for each division."""
    splits = experiment.part(SPLITS)
    rows, worst = [], 0.0
    for name in experiment.wanted(SETS):
        kept = np.mean(
            experiment.workers.each(experiment.searched(name, _K), partial(_kept, seed=experiment.seed), splits), axis=0
        )
        worst = max(worst, float((kept[0] - kept.min(axis=0)).max()))
        rows += [[name, share(loss, 2), *map(share, kept[:, column])] for column, loss in enumerate(LOSSES)]
    header = ["set", "δ", *(f"{share(fit, 2)} / {share(choose, 2)}" for fit, choose in _TRIED)]
    return f"""\
The calibration queries divide into those that fit the model, those that help to choose the policy, and the rest, which certify. A
column "a / b" gives the shares of the first two. The figure is the mean share of results that `auto` keeps on unseen queries, over
{splits} random splits, for an expected loss and K = {_K}. Taugate uses the first column. Where another is better, it keeps at most {share(worst)} less.

{table(header, rows)}
"""


def _kept(searched: SearchedSplit, number: int, seed: int) -> list[list[float]]:
    """Return the share kept of each division, at each loss."""
    rng = np.random.default_rng([seed, number])
    calibration, judges = unseen(rng, searched.units)
    rows = Resamples.draw(rng, searched.units.take(calibration), len(searched.documents), CalibrationSettings()).rows
    kept = []
    for shares in _TRIED:
        parts = QueryRoles.draw(calibration, searched.units, number, shares)
        estimated = searched.estimate(parts)
        scored = searched.scored(estimated)
        evidence = CalibrationQueries(scored, calibration, rows, parts, estimated, searched.units, number)
        queries = evidence.scored.take(judges)
        policies = [decide_policy(rule, evidence) for rule in _RULES]
        taus = [None if each.tau is None else np.float32(each.tau) for each in policies]
        kept.append(
            [float(keep(queries.decisions(each.kind), tau).mean()) for each, tau in zip(policies, taus, strict=True)]
        )
    return kept
