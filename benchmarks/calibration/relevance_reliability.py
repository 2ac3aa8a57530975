"""Check whether `relevance` comes true on unseen queries, by expected calibration error, with two encoders."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.calibration.trials import unseen
from benchmarks.experiment import Experiment, second_encoder
from benchmarks.markdown import share, table, verdict
from benchmarks.searched import SearchedSplit
from taugate.calibration.metrics.inputs import clusters, judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.relevance.record import ReliabilitySums, expected_calibration_error
from taugate.policy.relevance import Logistic
from taugate.retrieval.index.flat import FlatIndex

HEADING = "Reliability of relevance"
SETS = (
    "squad_v2_dev",
    "pubmedqa_labelled",
    "covidqa_chunks",
    "cosqa",
    "mixed_large",
    "squadshifts_new_wiki",
    "squadshifts_reddit",
)
# 1,109 queries in its two splits, which are not mixed: the model is fitted on one and judged on the other.
TRAIN, TEST = "scifact/train", "scifact/test"
SECOND_SETS = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "cosqa")
SPLITS = 50
_TARGET, _SECOND_TARGET = 0.02, 0.04


@dataclass(frozen=True)
class Errors:
    """Expected calibration error of the labels there are, and of labels drawn from the model's own probabilities."""

    measured: float
    if_right: float


def section(experiment: Experiment) -> str:
    """Measure the calibration error on unseen queries over random splits."""
    splits = experiment.part(SPLITS)
    second = second_encoder()
    if second is None:
        print("the second encoder is left out: its package is not installed")
    first_rows, second_rows = [], []
    for k in (5, 20):
        for name in experiment.wanted(SETS):
            done = experiment.workers.each(experiment.searched(name, k), partial(_own, seed=experiment.seed), splits)
            first_rows.append(_row(name, k, [error for error, _ in done], _TARGET))
            if second is not None and name in SECOND_SETS:
                other = experiment.searched(name, k, second)
                anew = experiment.workers.each(other, partial(_own, seed=experiment.seed), splits)
                work = partial(_kept, models=[model for _, model in done], seed=experiment.seed)
                kept = experiment.workers.each(other, work, splits)
                row = _row(name, k, [error for error, _ in anew], _SECOND_TARGET)
                second_rows.append([*row, share(float(np.mean(kept)))])
        if experiment.wanted([TRAIN]):
            first_rows.append(_row("scifact: train → test", k, _across(experiment, k, splits), _TARGET))
    header = ["set", "K", "ECE", "if right", "standard deviation", "largest"]
    return f"""\
`relevance` is the probability that a result is relevant. Its expected calibration error (ECE) says how far it is off, on average
over tenths: with an ECE of .01, a result that says 30 % is relevant in 29 to 31 % of the cases. The table has the mean over {splits}
random splits on the results of unseen queries, the standard deviation and the worst split.

A finite sample has an ECE above 0 even if the model is right. "If right" is the ECE it would then have: labels are drawn at random
from the model's own probabilities.

### all-MiniLM-L6-v2, sets of 1,000 queries or more

{table([*header, "target ≤ .02"], first_rows)}

### Another encoder: sre-embedding-model

Every calibration fits the model anew, and so does this table. "Not recalibrated" keeps the model of all-MiniLM-L6-v2, and shows why
that is wrong.

{table([*header, "target ≤ .04", "not recalibrated"], second_rows)}
"""


def _row(name: str, k: int, errors: list[Errors], target: float) -> list[str]:
    measured = [error.measured for error in errors]
    mean, right = float(np.mean(measured)), float(np.mean([each.if_right for each in errors]))
    spread = float(np.std(measured, ddof=1)) if len(errors) > 1 else 0.0
    figures = [share(each, 4) for each in (mean, right, spread, max(measured))]
    return [name, str(k), *figures, verdict(reached=mean <= target)]


def _errors(relevance: np.ndarray, grades: np.ndarray, seed: int, number: int) -> Errors:
    drawn = np.random.default_rng([seed, number, 1]).random(relevance.shape) < relevance
    alone = np.arange(len(relevance))
    return Errors(
        *(
            expected_calibration_error(ReliabilitySums.by_cluster(relevance, each, alone))
            for each in (grades >= 1, drawn)
        )
    )


def _own(searched: SearchedSplit, number: int, seed: int) -> tuple[Errors, Logistic]:
    """Fitted on its part of the queries that calibrate, judged on the unseen ones."""
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    estimated = searched.estimate(QueryRoles.draw(calibration, searched.units, number))
    if estimated is None:
        raise AssertionError("no set here is without relevant results")
    errors = _errors(estimated.answerable[judges], searched.judged.grades[judges], seed, number)
    return errors, estimated.relevance.model


def _kept(searched: SearchedSplit, number: int, models: list[Logistic], seed: int) -> float:
    """A model fitted on other scores, with the background of these."""
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    values, _ = searched.values(QueryRoles.draw(calibration, searched.units, number).fit)
    relevance = models[number].probability(values[judges]).astype(np.float32)
    return _errors(relevance, searched.judged.grades[judges], seed, number).measured


def _across(experiment: Experiment, k: int, splits: int) -> list[Errors]:
    """Fitted on one split of the data set, judged on all of another."""
    train, test = experiment.encoded(TRAIN), experiment.encoded(TEST)
    vectors, unseen_vectors = train.vectors.answerable, test.vectors.answerable
    index = FlatIndex.build(train.vectors.documents)
    judged, unseen_judged = (judge_queries(each.queries, each.vectors.answerable, index, k) for each in (train, test))
    units = SamplingUnits.from_clusters(clusters(train.queries))
    errors = []
    for number in range(splits):
        parts = QueryRoles.draw(np.arange(len(judged)), units, number)
        estimated = estimate_relevance(judged, vectors, parts, train.vectors.documents, train.lengths)
        if estimated is None:
            raise AssertionError("the training queries have relevant results")
        relevance = estimated.relevance.estimate(unseen_vectors, unseen_judged.top)
        errors.append(_errors(relevance, unseen_judged.grades, experiment.seed, number))
    return errors
