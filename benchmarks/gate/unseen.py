"""Judge `--projection auto` on queries that it has not seen: how often it is worse than no projection, and by how much."""

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.gate.projections import SETS, encoders
from benchmarks.markdown import share, table, verdict
from benchmarks.searched import EncodedSplit
from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.gate.baseline import GateBaseline, GateState, SearchTrial
from taugate.calibration.gate.projection import try_projection
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.splits import HoldoutSplit
from taugate.calibration.settings.settings import MARGIN, CandidateSettings, GateSettings
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.vectors.similarity import whole

HEADING = "Projections on unseen queries"
_SPLITS, _HOLDOUT, _K = 5, 0.3, 5
_LARGE, _FEW_SPLITS = 10_000, 2  # documents from which on a split takes minutes


def section(experiment: Experiment) -> str:
    """Measure the admitted projections on unseen queries, split by split."""
    gate = GateSettings(MARGIN)
    rows, means = [], []
    for encoder, title in encoders():
        for name in experiment.wanted(SETS):
            encoded = experiment.encoded(name, encoder)
            splits = _SPLITS if len(encoded.vectors.documents) <= _LARGE else _FEW_SPLITS
            drawn = [_split(encoded, encoder, seed, gate) for seed in range(splits)]
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
`calibrate --projection auto` fits and chooses a projection on 70 % of the queries; the other 30 % judge it. The table has the change of
accuracy@{_K} and NDCG@10 over {_SPLITS} random splits, or {_FEW_SPLITS} of a large set: the mean and the worst split. Where the gate admits no projection, nothing
changes. The worst split varies by chance: one query of 300 is .0033.

{table(["set", "encoder", "queries", "a projection chosen", "retention", f"accuracy@{_K}", "NDCG@10"], rows)}

No set loses more than the margin, {share(MARGIN)}, on average: the largest loss is {share(max(means), 4)}, {verdict(reached=held)}.
"""


def _split(encoded: EncodedSplit, encoder: str, seed: int, gate: GateSettings) -> tuple[float | None, float, float]:
    """The retention chosen, and the loss of accuracy and NDCG on the queries held out."""
    split = HoldoutSplit.by_document(np.random.default_rng(seed), clusters(encoded.queries), _HOLDOUT)
    trial, unseen = (_trial(encoded, part) for part in (split.calibration, split.heldout))
    baseline = GateBaseline.judge(split.calibration, SamplingUnits.from_labels(clusters(trial.queries)), trial)
    before = GateState.exact(OnnxEncoder.load(exported_encoder(encoder)), encoded.vectors, trial)
    _, state = try_projection(baseline, before, CandidateSettings(projection="auto"), seed, gate)
    found = state.admitted
    if found.projection is None:
        return None, 0.0, 0.0
    queries, documents = found.encoded.answerable[split.heldout], whole(found.encoded.documents)
    base, after = unseen.outcomes(), SearchTrial.build(unseen.queries, queries, documents, _K).outcomes()
    losses = (getattr(base, name).mean() - getattr(after, name).mean() for name in ("accuracy", "ndcg"))
    return found.projection.record.retention, *losses


def _trial(encoded: EncodedSplit, members: np.ndarray) -> SearchTrial:
    queries = [encoded.queries[position] for position in members.tolist()]
    return SearchTrial.build(queries, encoded.vectors.answerable[members], encoded.vectors.documents, _K)
