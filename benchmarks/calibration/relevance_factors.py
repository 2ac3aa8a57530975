"""Compare ways to make relevance come true for questions without an answer, as a table of docs/research/calibration.md."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.calibration import relevance_unanswered as shared
from benchmarks.calibration.trials import unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.page import data_folder
from benchmarks.workers import Workers
from taugate.calibration.metrics.reliability import ReliabilitySums, expected_calibration_error
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import fit_on_topic, fit_relevance, recalibrate
from taugate.calibration.relevance.unanswered import mixture_weights
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.background import Background, Float64
from taugate.retrieval.policy.relevance import Logistic, features
from taugate.retrieval.vectors.similarity import Float32

SPLITS = 20


def main() -> None:
    """Print the table of the data sets named on the command line."""
    rows = []
    with threadpool_limits(limits=1), Workers() as workers:
        experiment = Experiment(data_folder(), frozenset(), SPLITS, 0, workers)
        for name in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as spool:
                searched = shared._search(experiment, name, Path(spool))
                splits = [_split(searched, number) for number in range(SPLITS)]
            rows += [
                [name, variant, *(share(float(at)) for at in np.mean([split[variant] for split in splits], axis=0))]
                for variant in splits[0]
            ]
    print(table(["set", "way", "ECE", "Brier, best", "Brier, best, other questions", "kept at 2 %", "at 5 %"], rows))


def _split(searched: shared.SearchedSet, number: int) -> dict[str, tuple[float, ...]]:
    calibration, judges = unseen(np.random.default_rng([0, number]), searched.units)
    roles = QueryRoles.draw(calibration, searched.units, number)
    encoded, judged = searched.indexed.encoded, searched.judged
    background = Background.of(encoded.documents, encoded.answerable[roles.fit], encoded.lengths)

    def described(top: TopK, vectors: Float32) -> Float64:
        return features(top.scores, background.of_queries(vectors), background.rows(top.positions), shared.K)

    values, relevant = described(judged.top, encoded.answerable), judged.relevant
    off_topic = searched.questions.off_topic
    kinds = [off_topic, *(shared._divided(kind, searched.units, calibration) for kind in searched.questions.close[:-1])]
    learning = [described(kind.top, kind.vectors) for kind in (kind.take(kind.learns) for kind in kinds)]
    measuring = [described(kind.top, kind.vectors) for kind in (kind.take(kind.measures) for kind in kinds)]
    other = described(*searched.other)
    fit, rest = roles.fit, roles.not_fitting
    fitted = fit_relevance(values[fit], relevant[fit], roles.clusters)
    if fitted is None:
        raise AssertionError("no set here is without relevant results")
    plain = fitted.model

    def mapped(model: Logistic) -> Logistic:
        return recalibrate(model, values[rest], relevant[rest], None, learning)

    models = {"as before": recalibrate(plain, values[rest], relevant[rest]), "recalibrated only": mapped(plain)}
    on_topic = fit_on_topic(values[fit], learning[0])
    for assumed in (0.5, 0.1, 0.03):
        moved = replace(on_topic, intercept=on_topic.intercept + float(np.log((1 / assumed - 1) / 9)))
        models[f"factor, off-topic share {assumed:g}"] = mapped(replace(plain, on_topic=moved))
    every = fit_on_topic(values[fit], np.concatenate(learning))
    every = replace(every, intercept=every.intercept - float(np.log(9)))
    models["factor of all kinds, share 0.5"] = mapped(replace(plain, on_topic=every))
    models["one model of the mixture"] = mapped(_single(values[fit], relevant[fit], learning, fitted.regularization))
    return {
        name: _figures(model.probability, values[judges], relevant[judges], measuring, other)
        for name, model in models.items()
    }


def _single(values: Float64, relevant: np.ndarray, kinds: list[Float64], strength: float) -> Logistic:
    every = np.concatenate([values, *kinds])
    rows = every.reshape(-1, every.shape[2])
    true = np.concatenate([relevant.ravel(), np.zeros(len(rows) - relevant.size, dtype=np.bool_)])
    weights = np.repeat(mixture_weights(len(values), [len(kind) for kind in kinds]), every.shape[1])
    center, scale = rows.mean(axis=0), rows.std(axis=0)
    regression = LogisticRegression(C=strength, max_iter=1000).fit((rows - center) / scale, true, weights)
    return Logistic(center, scale, regression.coef_[0], float(regression.intercept_[0]))


def _figures(
    probability: Callable[[Float64], Float64],
    values: Float64,
    relevant: np.ndarray,
    kinds: list[Float64],
    other: Float64,
) -> tuple[float, ...]:
    def sums(kinds: list[Float64], columns: slice) -> ReliabilitySums:
        every = np.concatenate([values, *kinds])[:, columns]
        true = np.zeros(every.shape[:2], dtype=np.bool_)
        true[: len(values)] = relevant[:, columns]
        weights = mixture_weights(len(values), [len(kind) for kind in kinds])
        relevance = probability(every).astype(np.float32)
        return ReliabilitySums.by_cluster(relevance, true, np.arange(len(every)), weights=weights)

    every, best = [*kinds, other], slice(0, 1)
    return (
        expected_calibration_error(sums(every, slice(None))),
        float(sums(every, best).total.brier()),
        float(sums([other], best).total.brier()),
        *shared._kept(probability(values).astype(np.float32), relevant),
    )


if __name__ == "__main__":
    main()
