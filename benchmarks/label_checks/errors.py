"""Move labels on purpose, and count how many of the labels that the report would list are among them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.label_checks.plan import LabelCheckPlan, had_a_say
from benchmarks.markdown import Target, share, table, targets
from benchmarks.searched import EncodedSplit, SearchedSplit
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.label_errors import cross_fitted, doubtful_labels
from taugate.calibration.report.label_errors import MAX_DOUBTFUL
from taugate.ingestion.dataset.judgements import HUMAN
from taugate.retrieval.policy.background import Float64

HEADING = "Labels moved on purpose"
MOVED = 0.05  # of the queries
K = 5
_FEWEST = 30  # queries of which a model of relevance is fitted
Move = Literal["to another result", "far away"]
_MOVES: tuple[Move, ...] = ("to another result", "far away")


@dataclass(frozen=True)
class _Draw:
    """The outcome of one draw, as shares.

    Attributes:
        irrelevant: Of the labels listed of each kind, those that were moved.
        missing: Of the labels listed of each kind, those that were moved.
        plain: The same of twenty labels in the order of their own probability.
        chance: Of the same number of labels of each kind, drawn at random.
    """

    irrelevant: float
    missing: float
    plain: tuple[float, float]
    chance: tuple[float, float]

    @classmethod
    def of(cls, searched: SearchedSplit, move: Move, rng: np.random.Generator, number: int) -> Self | None:
        grades = _moved(searched.judged.grades, move, rng)
        wrong = (grades >= 1) != (searched.judged.grades >= 1)
        judged = replace(searched.judged, grades=grades)
        roles = QueryRoles.draw(np.arange(len(judged)), searched.units, number)
        estimated = replace(searched, judged=judged).estimate(roles)
        if estimated is None:
            return None
        probabilities = cross_fitted(estimated, roles)
        found = doubtful_labels(probabilities, judged, MAX_DOUBTFUL // 2)
        return cls(
            _share([(each.row, each.rank) for each in found.irrelevant], wrong),
            _share([(each.row, each.rank) for each in found.missing], wrong),
            _plain(probabilities, judged, wrong),
            (float(wrong[judged.relevant].mean()), float(wrong[~judged.relevant].mean())),
        )


def _moved(grades: NDArray[np.int64], move: Move, rng: np.random.Generator) -> NDArray[np.int64]:
    """Move the label of the best relevant result of some queries: to another result, or to a document that is none."""
    grades = grades.copy()
    retrieved = np.flatnonzero((grades >= 1).any(axis=1) & (grades == 0).any(axis=1))
    for row in rng.permutation(retrieved)[: round(MOVED * len(grades))].tolist():
        if move == "to another result":
            grades[row, rng.choice(np.flatnonzero(grades[row] == 0))] = 1
        grades[row, int(grades[row].argmax())] = 0
    return grades


def _plain(probabilities: Float64, judged: JudgedQueries, wrong: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the shares of moved labels among the ten of each kind with the lowest probability of their own label."""
    most = MAX_DOUBTFUL // 2

    def lowest(labels: NDArray[np.bool_], own: Float64) -> float:
        order = np.argsort(np.where(labels, own, np.inf), axis=None, kind="stable")[:most]
        return float(wrong.ravel()[order].mean())

    return lowest(judged.relevant, probabilities), lowest(~judged.relevant, 1 - probabilities)


def _share(listed: list[tuple[int, int]], wrong: NDArray[np.bool_]) -> float:
    return float(np.mean([wrong[place] for place in listed])) if listed else 0.0


def section(plan: LabelCheckPlan) -> str:
    """Move labels of every set again and again, and list the doubtful ones."""
    rows: dict[Move, list[list[object]]] = {move: [] for move in _MOVES}
    gains = []
    for name, searched in _searched(plan):
        for move in _MOVES:
            rngs = [np.random.default_rng([plan.seed, number]) for number in range(plan.draws)]
            draws = [_Draw.of(searched, move, rng, number) for number, rng in enumerate(rngs)]
            known = [each for each in draws if each is not None]
            if not known:
                continue
            kinds = {
                "irrelevant": [(each.irrelevant, each.plain[0], each.chance[0]) for each in known],
                "missing": [(each.missing, each.plain[1], each.chance[1]) for each in known],
            }
            means = {kind: np.mean(values, axis=0).tolist() for kind, values in kinds.items()}
            shown = means if move == "to another result" else {"missing": means["missing"]}
            if had_a_say(name) == "unseen":
                gains += [(ours, chance) for ours, _, chance in shown.values()]
            cells = [
                share(value, digits) for each in shown.values() for value, digits in zip(each, (2, 2, 3), strict=True)
            ]
            rows[move].append([name, had_a_say(name), f"{len(searched.queries):,}", *cells])
    times = min(ours / chance for ours, chance in gains)
    columns = ["moved, of the ten listed", "of ten by their own probability", "of ten at random"]
    header = ["set", "order", "queries"]
    wanted = [
        Target("unseen sets: moved labels listed, as a multiple of chance, smallest", times, at_least=5, unit=" times")
    ]
    return f"""\
The truth is known where a label is wrong on purpose. {100 * MOVED:.0f} % of the queries get a wrong label: it moves from the retrieved answer to
another of the {K} results, or to a document far away. Then the model of relevance is fitted on these labels, as `taugate calibrate` would,
and the report's twenty labels are listed, ten of each kind. The tables have the share of them that was moved, as means over {plan.draws}
draws.

- *Of ten by their own probability* takes the labels that the model finds least likely, without looking at the query's other results.
- *Of ten at random* is what chance finds.

The public labels have errors of their own. In covidqa_chunks and cosqa, many results without a label are right answers. They count as
false finds here, and a person would still be glad to see them.

The list helps most where a query has one or two right answers. In cranfield, msmarco_dl_mini and vaswani_npl a query has 7 to 58 relevant
documents. One label that moves among them leaves no trace, and the list is little better than chance.

{targets(wanted)}

### Moved to another result

Such a move leaves two wrong labels: a wrong result is labelled relevant, and the answer has no label.

{table([*header, *(f"labelled relevant: {each}" for each in columns), *(f"without a label: {each}" for each in columns)], rows["to another result"])}

### Moved far away

The label is now on a document that the query does not retrieve, which the report cannot show. The answer without a label remains.

{table([*header, *(f"without a label: {each}" for each in columns)], rows["far away"])}
"""


def _searched(plan: LabelCheckPlan) -> Iterator[tuple[str, SearchedSplit]]:
    for public in plan.sets:
        with plan.copied(public) as folder:
            encoded = EncodedSplit.read(folder.parent, public.name, HUMAN, DEFAULT_ENCODER)
        if len(encoded.queries) > _FEWEST:
            yield public.name, SearchedSplit.of(encoded, K)
