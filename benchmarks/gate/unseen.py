"""`--projection auto` on queries that it has not seen: where it is worse than no projection, and by how much."""

from collections.abc import Sequence

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.gate.projections import SETS, encoders
from benchmarks.markdown import share, table, verdict
from benchmarks.searched import EncodedSplit
from taugate.calibration.gate.gate import Candidate, Trial, judge
from taugate.calibration.gate.projection import admit_projection
from taugate.calibration.metrics.bootstrap import Split
from taugate.calibration.metrics.clusters import Units, clusters
from taugate.calibration.settings.settings import MARGIN, CandidateSettings, GateSettings
from taugate.retrieval.release.records import GateRecord

HEADING = "Projections on unseen queries"
_SPLITS, _HOLDOUT, _K = 5, 0.3, 5
_LARGE, _FEW_SPLITS = 10_000, 2  # documents from which on a split takes minutes


def section(experiment: Experiment) -> str:
    """Measure the section and return its Markdown."""
    gate = GateSettings(MARGIN)
    rows, means = [], []
    for encoder, title in encoders():
        for name in experiment.wanted(SETS):
            encoded = experiment.encoded(name, encoder)
            splits = _SPLITS if len(encoded.vectors.documents) <= _LARGE else _FEW_SPLITS
            drawn = [_split(encoded, seed, gate) for seed in range(splits)]
            chosen = [retention for retention, _, _ in drawn if retention is not None]
            losses = np.array([[accuracy, ndcg] for _, accuracy, ndcg in drawn])
            means.append(losses.mean(axis=0).max())
            spread = f"{min(chosen):g} to {max(chosen):g}" if chosen else "–"
            cells = [
                f"{-mean:+.4f} (worst {-worst:+.4f})" for mean, worst in zip(losses.mean(0), losses.max(0), strict=True)
            ]
            rows.append([name, title, f"{len(encoded.queries):,}", f"{len(chosen)} of {splits}", spread, *cells])
    held = max(means) <= MARGIN
    return f"""\
{_SPLITS} random splits, {_FEW_SPLITS} of a large set: 70 % of the queries decide and fit, as `calibrate --projection auto` does, the other 30 % are measured. Change
of accuracy@{_K} and NDCG@10 there, mean of the splits and the worst of them; nothing is chosen and nothing changes where the gate
admits none. The worst split has the chance of its queries in it: of 300 queries one is .0033.

{table(["set", "encoder", "queries", "a projection chosen", "retention", f"accuracy@{_K}", "NDCG@10"], rows)}

No set loses more than the margin, {share(MARGIN)}, on average: the largest loss is {share(max(means), 4)}, {verdict(reached=held)}.
"""


def _split(encoded: EncodedSplit, seed: int, gate: GateSettings) -> tuple[float | None, float, float]:
    """The retention chosen, and the loss of accuracy and NDCG on the queries held out."""
    split = Split.by_document(np.random.default_rng(seed), clusters(encoded.queries), _HOLDOUT)
    trial, unseen = (_trial(encoded, part) for part in (split.calibration, split.heldout))
    baseline, units = trial.outcome(), Units.of(clusters(trial.queries))

    def judged(candidates: Sequence[Candidate]) -> list[GateRecord]:
        return judge(baseline, candidates, units, gate)

    found = admit_projection(trial, encoded.vectors, CandidateSettings(projection="auto"), seed, judged)
    if found.projection is None or found.record is None:
        return None, 0.0, 0.0
    before = unseen.outcome()
    moved = Trial(unseen.queries, found.encoded.answerable[split.heldout], found.encoded.documents, _K)
    after = moved.outcome()
    losses = (getattr(before, name).mean() - getattr(after, name).mean() for name in ("accuracy", "ndcg"))
    return found.record.retention, *losses


def _trial(encoded: EncodedSplit, members: np.ndarray) -> Trial:
    queries = [encoded.queries[position] for position in members.tolist()]
    return Trial(queries, encoded.vectors.answerable[members], encoded.vectors.documents, _K)
