"""Compare the logistic model with boosted trees, and the cuts of the product with a joint cut."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from benchmarks.calibration.trials import LOSSES, Positions, certified, unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.searched import SearchedSplit
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.risk.certify import LossLimit, certify
from taugate.calibration.risk.steps import loss_steps
from taugate.retrieval.policy.policy import keep

HEADING = "Models and cuts tried"
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa", "mixed_large")
SPLITS = 20
_EXPONENTS = (0.25, 0.5, 0.75)
_CUTS = ("similarity", *(f"score / best^{share(a, 2)}" for a in _EXPONENTS), "relative", "logistic", "trees")


@dataclass(frozen=True)
class Tried:
    """Hold the figures of one split: log loss of the logistic model and of the trees, and shares kept, (cuts, losses)."""

    log_losses: tuple[float, float]
    kept: np.ndarray


def section(experiment: Experiment) -> str:
    """Measure each model and cut on the same random splits."""
    splits = experiment.part(SPLITS)
    tried = {
        (name, k): experiment.workers.each(experiment.searched(name, k), partial(_try, seed=experiment.seed), splits)
        for name in experiment.wanted(SETS)
        for k in (5, 20)
    }
    models, cuts = [], []
    for (name, k), each in tried.items():
        losses = np.array([one.log_losses for one in each])
        difference = losses[:, 1] - losses[:, 0]
        error = difference.std(ddof=1) / np.sqrt(splits) if splits > 1 else 0.0
        kept = np.mean([one.kept for one in each], axis=0)
        gain = kept[-1] - kept[-2]
        means = [share(mean, 4) for mean in losses.mean(axis=0)]
        models.append(
            [name, k, *means, f"{difference.mean():+.4f} ± {error:.4f}", " / ".join(f"{x:+.3f}" for x in gain)]
        )
        cuts.append([name, k, *(" / ".join(share(x) for x in row) for row in kept)])
    return f"""\
{splits} random splits, measured on unseen queries. All models are fitted on the same queries and features. The same other queries certify
every cut, for an expected loss of 1 / 2 / 5 %.

### Logistic regression and boosted trees

The trees are scikit-learn's HistGradientBoostingClassifier: depth 3, 60 trees, learning rate .1, leaves of 40, l2 of 1. The last two
columns subtract the logistic model from the trees: below 0 the trees are better. {_trees(tried)}

{table(["set", "K", "log loss, logistic", "trees", "difference", "difference in share kept, 1 / 2 / 5 %"], models)}

### One cut on score and relative score together

A cut on score / best^a compares the similarity with the threshold at a = 0, and the relative score at a = 1. {_joint(tried)}

{table(["set", "K", *_CUTS], cuts)}
"""


def _try(searched: SearchedSplit, number: int, seed: int) -> Tried:
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    parts = QueryRoles.draw(calibration, searched.units, number)
    estimated = searched.estimate(parts)
    if estimated is None:
        raise AssertionError("no set here is without relevant results")
    values, _ = searched.values(parts.fit)
    logistic = estimated.fit.model.probability(values).astype(np.float32)  # not scaled on other queries, as the trees
    relevant = searched.judged.grades >= 1
    trees = HistGradientBoostingClassifier(
        max_depth=3, max_iter=60, learning_rate=0.1, min_samples_leaf=40, l2_regularization=1.0, random_state=0
    )
    flat = values.reshape(-1, values.shape[-1])
    trees.fit(values[parts.fit].reshape(-1, values.shape[-1]), relevant[parts.fit].ravel())
    boosted = trees.predict_proba(flat)[:, 1].reshape(relevant.shape).astype(np.float32)
    scores = searched.judged.top.scores
    best = np.maximum(scores[:, :1], 1e-6)
    decisions = [(scores / best**a).astype(np.float32) for a in (0, *_EXPONENTS, 1)] + [logistic, boosted]
    losses = [
        float(log_loss(relevant[judges].ravel(), each[judges].ravel(), labels=[False, True])) for each in decisions[-2:]
    ]
    kept = np.array([_kept(searched, each, parts.certify, judges) for each in decisions])
    return Tried((losses[0], losses[1]), kept)


def _kept(searched: SearchedSplit, decisions: np.ndarray, certifying: Positions, judges: Positions) -> list[float]:
    """Return the share kept at each loss, certified as the product certifies."""
    queries = searched.judged.take(certifying)
    shares = []
    for loss in LOSSES:
        rule = certified("similarity", "expected-loss", loss)
        steps = loss_steps(queries, decisions[certifying], rule.metric, searched.units.take(certifying))
        tau = certify([LossLimit(rule.metric, steps, loss)], rule).tau
        shares.append(float(keep(decisions[judges], None if tau is None else np.float32(tau)).mean()))
    return shares


def _trees(tried: dict[tuple[str, int], list[Tried]]) -> str:
    kept = np.array([np.mean([one.kept for one in each], axis=0) for each in tried.values()])
    losses = np.array([np.mean([one.log_losses for one in each], axis=0) for each in tried.values()])
    gain = kept[:, -1] - kept[:, -2]
    return (
        f"They have the smaller log loss in {int((losses[:, 1] < losses[:, 0]).sum())} of {len(losses)} rows, and keep fewer "
        f"results in {int((gain < 0).sum())} of {gain.size} cells, by .01 or more in {int((gain <= -0.01).sum())}; they keep more "
        f"by .01 or more in {int((gain >= 0.01).sum())}. Mean difference {gain.mean():+.4f}."
    )


def _joint(tried: dict[tuple[str, int], list[Tried]]) -> str:
    kept = np.array([np.mean([one.kept for one in each], axis=0) for each in tried.values()])
    joint, others = kept[:, 1:4].min(axis=1), kept[:, [0, 4, 5]].min(axis=1)
    return (
        f"The best of the three exponents, picked in hindsight, keeps fewer results than the best of similarity, relative and "
        f"logistic in {int((joint < others).sum())} of {joint.size} cells, by .01 or more in "
        f"{int((joint <= others - 0.01).sum())}. Mean difference {(joint - others).mean():+.4f}."
    )
