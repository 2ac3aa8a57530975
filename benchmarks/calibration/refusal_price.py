"""Measure what the default ρ costs a certificate on small and large sets, and whether the two together hold."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from benchmarks.calibration.default_refusal import WEIGHTS, with_questions
from benchmarks.experiment import Experiment
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.metrics.inputs import clusters, judge_queries
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.decide import decide
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.rules import ThresholdRule
from taugate.policy.policy import POLICIES, keep_answered
from taugate.release.refusal_records import RefusalRecord

HEADING = "What ρ costs a certificate"
SETS = ("squad_v2_dev", "scifact", "cosqa", "covidqa_chunks", "pubmedqa_labelled", "squadshifts_new_wiki")
_SMALL = ((150, 0.05), (427, 0.02))  # labels, and the largest loss that they are to certify
_SPLITS = 60
_LARGE, _LOSSES = ("squad_v2_dev", "squadshifts_new_wiki"), (0.02, 0.05)
_K = 5
Refuse = Literal["auto", "off"]


@dataclass(frozen=True)
class Priced:
    """One calibration on some queries of a set, measured on all others.

    Attributes:
        certified: Whether a loss is certified.
        lowered: Whether the certificate lowered ρ.
        kept: Share of the results of the other queries that is kept.
        lost: Share of the other queries that lose their answer to ρ or τ, weighted as the certificate counts documents.
        refused: Shares of the off-topic questions refused, without the certificate and with it; NaN without ρ.
    """

    certified: bool
    lowered: bool
    kept: float
    lost: float
    refused: tuple[float, float]


def section(experiment: Experiment) -> str:
    """Calibrate with ρ and without it on the same queries."""
    rows: list[list[str]] = []
    ratios, above = [], []
    for name in experiment.wanted(SETS):
        with tempfile.TemporaryDirectory() as spool:
            indexed = with_questions(experiment.data / name, WEIGHTS.get(name, 0.0), experiment.seed, Path(spool))
            for labels, loss in _plans(name, len(indexed.dataset.answerable)):
                priced: dict[Refuse, list[Priced]] = {"auto": [], "off": []}
                for number in range(experiment.part(_SPLITS)):
                    rng = np.random.default_rng([experiment.seed, number, labels])
                    few = _drawn(indexed, labels, rng)
                    for refuse, results in priced.items():
                        settings = CalibrationSettings(
                            seed=number,
                            refuse=refuse,
                            rule=ThresholdRule.from_options(max_loss=[loss]),
                            drawn="queries" if (labels, loss) in _SMALL else "auto",
                        )
                        results.append(_priced(indexed, few, settings))
                row = _row(name, labels, loss, priced)
                print(" | ".join(row), flush=True)
                rows.append(row)
                counts = [sum(each.certified for each in results) for results in priced.values()]
                if counts[1]:
                    ratios.append(counts[0] / counts[1])
                above.append(float(np.mean([each.certified and each.lost > loss for each in priced["auto"]])))
    wanted = [
        Target("certified by default, as a share of what `--refuse off` certifies", min(ratios), at_least=0.95),
        Target("splits with a loss above δ on all other queries", max(above), at_most=0.05),
    ]
    header = ["set", "labels", "δ", "certified: default / off", "ρ lowered", "kept: default / off", "above δ"]
    return f"""\
Each split draws labels and calibrates on them as `taugate calibrate --max-loss δ` does, with ρ and with `--refuse off`. All other queries of
the set judge. Few labels are drawn one by one (`--drawn queries`), seven tenths of all by whole documents. K = {_K}; the lexical weights are
those above.

{targets(wanted)}

{table([*header, "off-topic refused: before → after"], rows)}
"""


def _plans(name: str, queries: int) -> Iterator[tuple[int, float]]:
    yield from (plan for plan in _SMALL if plan[0] <= queries / 2)
    if name in _LARGE:
        yield from ((round(0.7 * queries), loss) for loss in _LOSSES)


def _drawn(indexed: IndexedSet, labels: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw so many queries one by one, or whole documents until they have so many, if labels are most of the queries."""
    of = clusters(indexed.dataset.answerable)
    order = rng.permutation(len(of)) if labels <= len(of) / 2 else rng.permutation(of.max() + 1)[of]
    return np.sort(np.argsort(order, kind="stable")[:labels])


def _priced(indexed: IndexedSet, rows: NDArray[np.int64], settings: CalibrationSettings) -> Priced:
    dataset, encoded, near = indexed.dataset, indexed.encoded, indexed.encoded.near_misses
    if near is None:
        raise AssertionError("there are near misses")
    place = np.full(len(dataset.answerable), -1)
    place[rows] = np.arange(len(rows))
    of_rows = place[near.sources] >= 0
    some = IndexedSet(
        replace(dataset, answerable=_at(dataset.answerable, rows), unanswerable=[]),
        replace(
            encoded,
            answerable=encoded.answerable[rows],
            unanswerable=encoded.unanswerable[:0],
            near_misses=replace(near, vectors=near.vectors[of_rows], sources=place[near.sources[of_rows]]),
        ),
        indexed.index,
    )
    study, inputs = some.studied(settings)
    decided = decide(study, inputs)
    policy, others = decided.policy, np.setdiff1d(np.arange(len(dataset.answerable)), rows)
    judged = judge_queries(_at(dataset.answerable, others), encoded.answerable[others], indexed.index, _K)
    estimated = None if study.estimated is None else study.estimated.of_vectors
    relevance = None
    if POLICIES[policy.kind].needs_model and estimated is not None:
        relevance = estimated.estimate(encoded.answerable[others], judged.top)
    answered = None if study.answer_rule is None else judged.top.scores[:, 0] >= np.float32(study.answer_rule.tau)
    kept = keep_answered(POLICIES[policy.kind].decide(judged.top.scores, relevance), policy.threshold, answered)
    return Priced(
        certified=policy.tau is not None,
        lowered=study.scored.answering is not None and study.scored.answering.planned is not None,
        kept=float(kept.mean()),
        lost=float(judged.lost("accuracy", kept).mean()),
        refused=_refused(decided.refusal),
    )


def _at(queries: Sequence[LabelledQuery], rows: NDArray[np.int64]) -> list[LabelledQuery]:
    return [queries[row] for row in rows.tolist()]


def _refused(record: RefusalRecord | None) -> tuple[float, float]:
    counted = None if record is None else record.evidence.get("off_topic")
    if counted is None or counted.uncertified is None:
        return np.nan, np.nan
    return counted.uncertified / counted.queries, counted.refused / counted.queries


def _row(name: str, labels: int, loss: float, priced: dict[Refuse, list[Priced]]) -> list[str]:
    both = [priced["auto"], priced["off"]]
    kept = [float(np.mean([each.kept for each in results])) for results in both]
    lowered = float(np.mean([each.lowered for each in both[0]]))
    above = float(np.mean([each.certified and each.lost > loss for each in both[0]]))
    before, after = np.nanmean([each.refused for each in both[0]], axis=0).tolist()
    return [
        name,
        f"{labels:,}",
        share(loss, 2),
        " / ".join(str(sum(each.certified for each in results)) for results in both),
        share(lowered, 2),
        " / ".join(map(share, kept)),
        share(above, 2),
        f"{share(before, 2)} → {share(after, 2)}",
    ]
