"""Measure how often a cheaper precision is accepted with a part of the labels, and a candidate that loses nothing."""

import tempfile
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.calibration.default_refusal import WEIGHTS, with_questions
from benchmarks.encoding import loaded_encoder
from benchmarks.evidence.verdicts import ALPHA
from benchmarks.experiment import Experiment
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.acceptance.baseline import LexicalPart, SearchTrial
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import CheaperPrecision, cheaper_encoder
from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.progress import Job
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import DocumentLosses, min_detectable_loss, paired_losses
from taugate.evidence.rules import MARGIN, GateSettings, default_margin
from taugate.policy.arrays import HybridVectors
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import vector_index, words_of

HEADING = "More labels accept more"
SETS = ("squad_v2_dev", "covidqa_chunks", "squadshifts_new_wiki")
_PRECISIONS: tuple[CheaperPrecision, ...] = ("int8", "bfloat16")
_PARTS = (0.6, 0.7, 0.8, 0.9, 1.0)
_DRAWS, _CHECKED, _K, _TEXTS = 200, 3, 5, 100
# Worlds: shares of documents lost whole, by a half and by a fifth, and of those gained by as much. None loses the margin.
_LOSSES = np.array([1.0, 0.5, 0.2, -1.0, -0.5, -0.2])
_WORLDS = [
    world
    for whole in (0.0, 0.0003, 0.0005, 0.001, 0.0015, 0.002)
    for world in (
        (whole, 0, 0, 0, 0, 0),
        (whole, 0, 0.002, 0, 0, 0.002),
        (whole, 0, 0, whole, 0, 0),
        (0, 2 * whole, 0, 0, whole, 0),
        (whole, 0, 0.0125, 0, 0, 0.0075),
    )
]
_DOCUMENTS, _TRIALS = (600, 722, 843, 1000, 1204, 1500, 2000, 3000, 5000), 400


def section(experiment: Experiment) -> str:
    """Judge both precisions on random documents of every set."""
    rows, wanted = [], []
    for name in experiment.wanted(SETS):
        measured, units = _outcomes(experiment, name)
        for candidate in (*_PRECISIONS, "identical"):
            accepted = [_accepted(measured, candidate, units, part, experiment) for part in _PARTS]
            rows.append([name, candidate, *_lost(measured, candidate), *map(share, accepted)])
            if name == SETS[0] and candidate == "int8":
                wanted.append(Target("int8 on squad_v2_dev, from .7 of the documents", min(accepted[1:]), at_least=0.9))
            print(" | ".join(rows[-1]), flush=True)
    chances = [_chance(documents, experiment.seed) for documents in _DOCUMENTS]
    wanted.append(
        Target("least gain in chance from one number of documents to the next", min(np.diff(chances)), at_least=0.0)
    )
    header = ["set", "candidate", "answers lost / gained", *(f"{share(part, 1)} of the documents" for part in _PARTS)]
    return f"""\
The queries of a set are encoded in a cheaper precision, and judged on random documents with all their queries, {_DRAWS} draws. The margin is the
default one. `--precision auto` judges only the fastest precision, so a row is what `auto` accepts on a machine on which that precision is
the fastest, and at least 1.2 times as fast as float32. *Identical* loses nothing, and is accepted wherever (1 − margin)ⁿ ≤ .05 for n documents.

{targets(wanted)}

{table(header, rows)}

In a set, a document that is lost whole is drawn more often with more labels. So the second table draws documents of simulated worlds: the chance
to be accepted at a margin of {MARGIN:g}, on average over {len(_WORLDS)} candidates that are as good or lose less than the margin.

{table([f"{documents:,} documents" for documents in _DOCUMENTS], [[share(chance) for chance in chances]])}
"""


def _chance(documents: int, seed: int) -> float:
    """Return the mean chance of the worlds' candidates to be accepted."""
    rng, accepted = np.random.default_rng([seed, documents]), []
    for rates in _WORLDS:
        for counts in rng.multinomial(documents, [*rates, 1 - sum(rates)], size=_TRIALS).astype(np.float64):
            losses, ones = np.append(_LOSSES, 0.0), np.ones(len(counts))
            drawn = DocumentLosses(losses, ones, counts, ones, ALPHA)
            accepted.append(drawn.p_value(MARGIN) <= ALPHA * (1 + 1e-9))
    return float(np.mean(accepted))


def _outcomes(experiment: Experiment, name: str) -> tuple[dict[str, RankingOutcomes], SamplingUnits]:
    """Search for the queries of a set in every precision."""
    with tempfile.TemporaryDirectory() as spool:
        indexed = with_questions(experiment.data / name, WEIGHTS.get(name, 0.0), experiment.seed, Path(spool))
        dataset, encoded = indexed.dataset, indexed.encoded
        texts = [query.text for query in dataset.answerable]
        documents = dataset.documents
        some = [documents[row].text for row in range(0, len(documents), max(1, len(documents) // _TEXTS))][:_TEXTS]
        vectors = {"float32": encoded.answerable, "identical": encoded.answerable}
        for precision in _PRECISIONS:
            encoder = ExportedEncoder.load(cheaper_encoder(loaded_encoder().folder, precision, some))
            dense = encode(encoder, texts, len(texts), "query", EmbeddingCache.of(encoder), Job()).vectors
            before = encoded.answerable
            vectors[precision] = HybridVectors(dense, before.terms) if isinstance(before, HybridVectors) else dense
        hybrid = words_of(indexed.index)
        lexical = None if hybrid is None else (hybrid.lexical, hybrid.weight)
        trial = SearchTrial(
            dataset.answerable,
            encoded.answerable,
            encoded.documents,
            _K,
            cast(FlatIndex, vector_index(indexed.index)),
            dataset.parents,
            lexical and LexicalPart(*lexical),
        )
        found = {key: trial.judge(trial.exact.search(queries, trial.depth)) for key, queries in vectors.items()}
        return found, SamplingUnits.from_clusters(clusters(dataset.answerable))


def _accepted(
    measured: dict[str, RankingOutcomes], candidate: str, units: SamplingUnits, part: float, experiment: Experiment
) -> float:
    """Return the share of draws in which a candidate is accepted."""
    baseline, outcomes = measured["float32"], measured[candidate]
    accepted = []
    for number in range(1 if part == 1 else experiment.part(_DRAWS)):
        rng = np.random.default_rng([experiment.seed, number])
        drawn = rng.permutation(units.clusters.max() + 1)[: round(part * units.documents)]
        rows = np.flatnonzero(np.isin(units.clusters, drawn))
        some = units.take(rows)
        margin = default_margin(MARGIN, min_detectable_loss(some, 1 - ALPHA))
        p = max(
            paired_losses((before - after)[rows], some).p_value(margin)
            for before, after in ((baseline.accuracy, outcomes.accuracy), (baseline.ndcg, outcomes.ndcg))
        )
        accepted.append(p <= ALPHA * (1 + 1e-9))
        if number < _CHECKED:
            first, second = (RankingOutcomes(each.accuracy[rows], each.ndcg[rows]) for each in (baseline, outcomes))
            (record,) = judge(first, [GateCandidate(candidate, "precision", second)], some, GateSettings(margin))
            if record.admitted != accepted[-1]:
                raise AssertionError(f"{candidate}: the benchmark does not measure the gate")
        if candidate == "identical" and (1 - margin) ** len(drawn) <= ALPHA and not accepted[-1]:
            raise AssertionError("a candidate that loses nothing is refused")
    return float(np.mean(accepted))


def _lost(measured: dict[str, RankingOutcomes], candidate: str) -> list[str]:
    change = measured["float32"].accuracy - measured[candidate].accuracy
    return [f"{int((change > 0).sum())} / {int((change < 0).sum())}"]
