"""A public set as the queries that users ask, with what machines say of their results."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.encoding import encoded_set
from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.metrics.inputs import clusters, judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.data.beir import Dataset
from taugate.data.corpus import CORPUS
from taugate.data.generation.generate import MAX_QUERIES, generate_crops
from taugate.data.judgements import GENERATED
from taugate.data.queries import QUERIES
from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.few_labels.population import hit_scores, loss_scores, losses
from taugate.evidence.few_labels.prediction_powered import candidate_thresholds
from taugate.evidence.few_labels.shares import JudgedSample, UnjudgedSample
from taugate.policy.arrays import Float32, Float64
from taugate.retrieval.index.flat import FlatIndex

SETS = (
    "pubmedqa_labelled",
    "covidqa_chunks",
    "squad_v2_dev",
    "scifact",
    "scifact/train",
    "cosqa",
    "squadshifts_new_wiki",
    "squadshifts_reddit",
)
SIZES = (25, 50, 100)
K = 5
CROPS = "model fitted on crops"
# Stands for a language model: says of each result whether it is relevant, and is wrong about this share of them.
JUDGES = {"judge, 3 % wrong": 0.03, "judge, 6 % wrong": 0.06, "judge, 10 % wrong": 0.1}
_MAX_UNJUDGED = 2000  # queries of a log


@dataclass(frozen=True)
class Outcomes:
    """The hits or the losses of all q queries of a set, with the machines' scores.

    Attributes:
        true: (q, c) float64, 0 or 1.
        scores: By machine, (q, c) float64 each.
    """

    true: Float64
    scores: dict[str, Float64]

    def r_squared(self, machine: str) -> float:
        """Share of the variance of the first outcome that the machine explains, by the best straight line."""
        truth, said = self.true[:, 0], self.scores[machine][:, 0]
        return float(np.corrcoef(truth, said)[0, 1] ** 2) if truth.std() > 0 and said.std() > 0 else 0.0


@dataclass(frozen=True)
class Resample:
    """Queries of documents that were drawn anew: which of them people judged, and which not.

    Attributes:
        judged: (n,) and unjudged: (N,) positions in the set.
        judged_documents: Number of each draw.
        unjudged_documents: Number of each draw.
    """

    judged: NDArray[np.int64]
    unjudged: NDArray[np.int64]
    judged_documents: ClusterIds
    unjudged_documents: ClusterIds

    def samples(self, outcomes: Outcomes, machine: str) -> tuple[JudgedSample, UnjudgedSample]:
        """Return what an estimate takes."""
        scores = outcomes.scores[machine]
        return (
            JudgedSample(outcomes.true[self.judged], scores[self.judged], self.judged_documents),
            UnjudgedSample(scores[self.unjudged], self.unjudged_documents),
        )


@dataclass(frozen=True)
class AskedSet:
    """The q answerable queries of a set with their results, and crops of its documents with theirs.

    Attributes:
        decisions: (q, K) float32 similarities.
        relevant: (q, K).
        documents: (q,) clusters.
        machines: (q, K) probability that a result is relevant, by the machine that says so.
        crop_decisions: Those of the crops.
        crop_relevant: Those of the crops.
    """

    name: str
    decisions: Float32
    relevant: NDArray[np.bool_]
    documents: ClusterIds
    machines: dict[str, Float32]
    crop_decisions: Float32
    crop_relevant: NDArray[np.bool_]

    @classmethod
    def read(cls, data: Path, name: str, seed: int) -> Self:
        """Search the set, crop its documents, and fit the model of relevance on the crops."""
        folder, _, split = name.partition("/")
        people, asked = _encoded(data / folder, split or "test", name)
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place)
            (copy / CORPUS).symlink_to(data / folder / CORPUS)
            (copy / QUERIES).write_bytes((data / folder / QUERIES).read_bytes())
            generate_crops(copy, MAX_QUERIES, seed)
            cropped, crops = _encoded(copy, GENERATED, f"{name}, crops")
        index = FlatIndex.build(asked.documents)
        judged = judge_queries(people.answerable, asked.answerable, index, K)
        of_crops = judge_queries(cropped.answerable, crops.answerable, index, K)
        units = SamplingUnits.from_clusters(clusters(cropped.answerable))
        roles = QueryRoles.assign(np.arange(len(of_crops)), units, seed)
        fitted = roles and estimate_relevance(of_crops, crops.answerable, roles, crops.documents, crops.lengths)
        if not fitted:
            raise ValueError(f"{name}: no model can be fitted on its crops")
        relevant = judged.grades >= 1
        machines = {CROPS: fitted.relevance.estimate(asked.answerable, judged.top)}
        for number, (judge, wrong) in enumerate(JUDGES.items()):
            mistaken = np.random.default_rng([seed, number]).random(relevant.shape) < wrong
            machines[judge] = (relevant ^ mistaken).astype(np.float32)
        return cls(
            name,
            judged.top.scores,
            relevant,
            clusters(people.answerable),
            machines,
            of_crops.top.scores,
            of_crops.grades >= 1,
        )

    @property
    def hits(self) -> Outcomes:
        """Hits: a relevant result among the K."""
        hit: NDArray[np.bool_] = np.any(self.relevant, axis=1)
        return Outcomes(
            hit[:, None].astype(np.float64), {name: hit_scores(said) for name, said in self.machines.items()}
        )

    @property
    def thresholds(self) -> Float32:
        """Candidates for τ, (c,), the same in each resample."""
        return candidate_thresholds(self.decisions)

    def losses(self, thresholds: Float32) -> Outcomes:
        """Losses at each threshold."""
        scores = {name: loss_scores(said, self.decisions, thresholds) for name, said in self.machines.items()}
        return Outcomes(losses(self.relevant, self.decisions, thresholds), scores)

    def resamples(self, count: int, seed: int) -> Iterator[dict[int, Resample]]:
        """Yield `count` resamples by number of labels; those with more labels have those of the ones with fewer.

        Documents are drawn with replacement, with all of their queries. Of these, people judge some at random, and at
        most 2,000 others stand in the log.
        """
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            queries, draw = self.drawn(rng)
            mixed = rng.permutation(len(queries))
            rest = mixed[max(SIZES) : max(SIZES) + _MAX_UNJUDGED]
            yield {n: Resample(queries[mixed[:n]], queries[rest], draw[mixed[:n]], draw[rest]) for n in SIZES}

    def drawn(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw documents with replacement, with all of their queries; returns positions of queries, and their draws."""
        order = np.argsort(self.documents, kind="stable")
        sizes = np.bincount(self.documents)
        members = np.split(order, np.cumsum(sizes)[:-1])
        drawn = rng.integers(0, len(sizes), len(sizes))
        queries = np.concatenate([members[document] for document in drawn])
        return queries, np.repeat(np.arange(len(drawn)), sizes[drawn])


@lru_cache(maxsize=len(SETS))
def asked_set(data: Path, name: str, seed: int) -> AskedSet:
    """Read a set once for all sections; the arguments are those of `AskedSet.read`."""
    return AskedSet.read(data, name, seed)


def _encoded(folder: Path, split: str, name: str) -> tuple[Dataset, EncodedDataset]:
    with tempfile.TemporaryDirectory() as spool:
        return encoded_set(folder, split, Path(spool), name=name)
