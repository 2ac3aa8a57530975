"""Compare corrections of the model's probabilities: Platt's line, beta, isotonic, Venn–Abers, none."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from benchmarks.calibration.trials import unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.searched import SearchedSplit
from taugate.calibration.metrics.reliability import LIKELY, ReliabilitySums, expected_calibration_error
from taugate.calibration.metrics.splits import QueryRoles
from taugate.retrieval.policy.relevance import Recalibration

HEADING = "Recalibrations tried"
CHOSEN_ON = ("squadshifts_new_wiki", "squadshifts_reddit")
SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa")
SPLITS = 10
# Log-odds at which Venn–Abers is fitted anew, twice each, linear between them: quantiles of all results, most of which
# are surely irrelevant, and of the relevant ones.
_GRID = (10, 30)
_NAMES = ("none", "Platt", "beta", "isotonic", "Venn–Abers")
Map = Callable[[np.ndarray], np.ndarray]


def section(experiment: Experiment) -> str:
    """Measure each correction on unseen documents."""
    splits = experiment.part(SPLITS)
    rows: list[tuple[str, int, np.ndarray]] = []
    for name in experiment.wanted([*CHOSEN_ON, *SETS]):
        for k in (5, 20):
            done = experiment.workers.each(experiment.searched(name, k), partial(_scores, seed=experiment.seed), splits)
            rows.append((name, k, np.array(done)))  # (splits, maps, scores)
    shown = [
        f"### {title}\n\n{table(['set', 'K', *_NAMES], [_row(*row, score) for row in rows])}"
        for score, title in enumerate(("Log loss", "Brier score", "ECE of p ≥ .2"))
    ]
    return "\n\n".join(
        [
            f"""\
A correction maps the model's probabilities to better ones. All corrections are fitted on the same queries, which did not fit the
model, and measured on unseen documents over {splits} random splits by document. Platt's column has its own value. The others have their
difference from it, with the standard error over the splits: below 0 is better. Taugate uses beta calibration. The choice was made
on {" and ".join(CHOSEN_ON)}; the other sets had no say.""",
            *shown,
        ]
    )


def _row(name: str, k: int, scores: np.ndarray, which: int) -> list[object]:
    of_maps, platt = scores[:, :, which], scores[:, _NAMES.index("Platt"), which]
    cells = []
    for place, each in enumerate(_NAMES):
        difference = of_maps[:, place] - platt
        error = difference.std(ddof=1) / np.sqrt(len(platt)) if len(platt) > 1 else 0.0
        cells.append(share(float(platt.mean()), 4) if each == "Platt" else f"{difference.mean():+.5f} ± {error:.5f}")
    return [name, k, *cells]


def _scores(searched: SearchedSplit, number: int, seed: int) -> list[list[float]]:
    """Log loss, Brier score and ECE of p ≥ .2 of each map."""
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    parts = QueryRoles.draw(calibration, searched.units, number)
    estimated = searched.estimate(parts)
    if estimated is None:
        raise AssertionError("no set here is without relevant results")
    values, _ = searched.values(parts.fit)
    relevant = searched.judged.grades >= 1
    odds = replace(estimated.relevance.model, recalibration=Recalibration()).log_odds(values)
    fitted = [
        each(odds[parts.rest].ravel(), relevant[parts.rest].ravel()) for each in (_none, _platt, _isotonic, _venn_abers)
    ]
    fitted.insert(_NAMES.index("beta"), lambda odds: _sigmoid(estimated.relevance.model.recalibration.apply(odds)))
    scores = []
    for each in fitted:
        said, true = each(odds[judges]), relevant[judges]
        sums = ReliabilitySums.by_cluster(said.astype(np.float32), true, searched.units.labels[judges])
        scores.append(
            [
                float(log_loss(true.ravel(), np.clip(said, 1e-6, 1 - 1e-6).ravel(), labels=[False, True])),
                float(sums.whole.brier()),
                expected_calibration_error(sums, LIKELY),
            ]
        )
    return scores


def _sigmoid(odds: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-odds))
    return found


def _none(odds: np.ndarray, relevant: np.ndarray) -> Map:
    return _sigmoid


def _platt(odds: np.ndarray, relevant: np.ndarray) -> Map:
    line = LogisticRegression(C=1e9, max_iter=1000).fit(odds[:, None], relevant)
    return lambda new: _sigmoid(line.coef_[0, 0] * new + line.intercept_[0])


def _isotonic(odds: np.ndarray, relevant: np.ndarray) -> Map:
    steps = IsotonicRegression(out_of_bounds="clip").fit(odds, relevant)
    return lambda new: steps.predict(new.ravel()).reshape(new.shape)


def _venn_abers(odds: np.ndarray, relevant: np.ndarray) -> Map:
    """Inductive (Vovk, Petej and Fedorova, NIPS 2015), p₁ / (1 − p₀ + p₁)."""
    both = zip(_GRID, (odds, odds[relevant]), strict=True)
    grid = np.unique(np.concatenate([np.quantile(each, np.linspace(0, 1, size)) for size, each in both]))
    said = []
    for at in grid:
        low, high = (
            IsotonicRegression(out_of_bounds="clip")
            .fit(np.append(odds, at), np.append(relevant, label))
            .predict([at])[0]
            for label in (0, 1)
        )
        said.append(high / (1 - low + high))
    return lambda new: np.interp(new, grid, said)
