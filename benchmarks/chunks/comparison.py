"""Settings compared on the same queries: each difference with an interval that draws whole clusters of queries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.chunks.ranking import SETTINGS, WHOLE, WINDOW, K, Ranking, Rankings, Setting
from benchmarks.chunks.study_sets import StudySet
from benchmarks.markdown import share, table
from taugate.calibration.metrics.clusters import clusters
from taugate.calibration.metrics.ranking import accuracy, ideal_dcg, ndcg
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.evidence import Interval

METRICS = ("accuracy@5", "NDCG@10")
_ACCURATE = 5  # the first results, of which one has to be relevant
PLAIN = Setting(WINDOW)  # what is kept unless another setting is shown to be better


@dataclass(frozen=True)
class ComparedSet:
    """The results of one data set, q queries, under every chunk setting.

    Attributes:
        name: Of the set.
        queries: q.
        rankings: By setting.
        values: By setting, (q, 2) float64, accuracy@5 and NDCG@10 of each query.
        means: By setting, (b, 2), the means of b bootstraps, which draw the same clusters in every setting.
    """

    name: str
    queries: int
    rankings: Mapping[Setting, Ranking]
    values: Mapping[Setting, NDArray[np.float64]]
    means: Mapping[Setting, NDArray[np.float64]]

    @classmethod
    def measure(cls, name: str, study_set: StudySet, rankings: Rankings, seed: int, bootstraps: int) -> Self:
        """Rank in every setting, and bootstrap.

        Args:
            name: Of the set.
            study_set: It.
            rankings: Kept or computed.
            seed: Of the bootstraps.
            bootstraps: How many.
        """
        ranked = {setting: rankings.ranking(name, study_set, setting) for setting in SETTINGS}
        values = {setting: per_query(study_set.queries, each.grades) for setting, each in ranked.items()}
        labels = clusters(study_set.queries)
        means = bootstrapped_means(np.hstack([*values.values()]), labels, np.random.default_rng(seed), bootstraps)
        parts = np.split(means, len(values), axis=1)
        return cls(name, len(labels), ranked, values, dict(zip(values, parts, strict=True)))


def per_query(queries: Sequence[LabelledQuery], grades: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return accuracy@5 and NDCG@10 of each query, (q, 2).

    Args:
        queries: q.
        grades: (q, K) of their best documents.
    """
    whole = grades.astype(np.int64)
    first, all_of_them = whole[:, :_ACCURATE], np.ones(whole.shape, dtype=np.bool_)
    ideal = np.array([ideal_dcg(query.relevant.values(), K) for query in queries])
    return np.column_stack([accuracy(first, all_of_them[:, :_ACCURATE]), ndcg(whole, all_of_them, ideal)])


def bootstrapped_means(
    values: NDArray[np.float64], labels: NDArray[np.int64], rng: np.random.Generator, bootstraps: int
) -> NDArray[np.float64]:
    """Return the means of bootstraps that draw whole clusters with replacement, (bootstraps, m).

    `cluster_bootstrap` of the product draws alike, but for one column; here all columns have the same draws, so that
    their differences are paired.

    Args:
        values: (q, m).
        labels: (q,) clusters 0, 1, …, all used.
        rng: Generator.
        bootstraps: How many.
    """
    sizes = np.bincount(labels)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, labels, values)
    means = np.empty((bootstraps, values.shape[1]))
    for bootstrap in range(bootstraps):
        drawn = np.bincount(rng.integers(0, len(sizes), size=len(sizes)), minlength=len(sizes))
        means[bootstrap] = (drawn @ sums) / (drawn @ sizes)
    return means


def difference(sets: Sequence[ComparedSet], setting: Setting, other: Setting, metric: int) -> Interval:
    """Return the mean over sets of a setting's metric less that of another one, with its 95 % interval.

    Args:
        sets: Each counts alike.
        setting: Of both.
        other: Of both.
        metric: Its place in METRICS.
    """
    observed = [(each.values[setting] - each.values[other])[:, metric].mean() for each in sets]
    drawn = np.mean([(each.means[setting] - each.means[other])[:, metric] for each in sets], axis=0)
    lower, upper = np.percentile(drawn, [2.5, 97.5])
    return Interval(mean=float(np.mean(observed)), lower=float(lower), upper=float(upper))


def chosen(sets: Sequence[ComparedSet]) -> Setting:
    """Choose a setting: chunks that fill the window and do not overlap, unless another one is shown to be better.

    Better means a higher NDCG@10, in the mean over sets, by a difference whose 95 % interval is above 0. Of several
    such settings, the one with the highest mean is taken.

    Args:
        sets: On which to choose.
    """
    better = {
        setting: gain.mean
        for setting in SETTINGS
        if setting.size is not None and (gain := difference(sets, setting, PLAIN, 1)).lower > 0
    }
    return max(better, key=better.__getitem__, default=PLAIN)


def measured(
    readers: Mapping[str, Callable[[Path], StudySet]], data: Path, rankings: Rankings, seed: int, bootstraps: int
) -> list[ComparedSet]:
    """Measure several sets.

    Args:
        readers: By name.
        data: Folder of the public sets.
        rankings: Of `measure`.
        seed: Of `measure`.
        bootstraps: Of `measure`.
    """
    return [ComparedSet.measure(name, read(data), rankings, seed, bootstraps) for name, read in readers.items()]


def table_of(sets: Sequence[ComparedSet], settings: Sequence[Setting] = SETTINGS) -> str:
    """Format a row for each setting, with the mean over sets of every figure.

    Args:
        sets: One, or several that count alike.
    """
    rows = []
    for setting in settings:
        chunks = np.mean([each.rankings[setting].chunks / each.rankings[WHOLE].chunks for each in sets])
        cells: list[str] = []
        for metric in range(len(METRICS)):
            level = np.mean([each.values[setting][:, metric].mean() for each in sets])
            gain = difference(sets, setting, WHOLE, metric)
            cells += [share(float(level)), "" if setting == WHOLE else signed(gain)]
        rows.append([setting, f"{chunks:.1f}", *cells])
    header = ["chunks", "per document"]
    for name in METRICS:
        header += [name, "gain over no chunks"]
    return table(header, rows)


def signed(value: Interval) -> str:
    """Format a difference with its sign and its interval."""
    sign = "+" if round(value.mean, 3) >= 0 else "−"
    limits = (share(limit).replace("-", "−") for limit in (value.lower, value.upper))
    return f"{sign}{share(abs(value.mean))} [{', '.join(limits)}]"


def places(sets: Sequence[ComparedSet]) -> str:
    """Say in a sentence which hardware encoded the texts.

    Args:
        sets: Those measured.
    """
    found = sorted({ranking.place for each in sets for ranking in each.rankings.values()})
    return f"Documents were encoded by {' and '.join(found)}, and the rankings kept."
