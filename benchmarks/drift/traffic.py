"""Traffic whose distribution is known: queries of a data set as a release sees them, drawn as often as wanted."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.checkout import environment
from taugate.drift.observations import Observations
from taugate.evidence.divisions import HoldoutSplit
from taugate.policy.arrays import Float32
from taugate.policy.policy import POLICIES, keep
from taugate.registry.catalog import find
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load

_RANDOM = 64  # random documents of each query, of which every draw takes some
RANDOM_OF_A_QUERY = 4
_BATCH = 32


@dataclass(frozen=True)
class Pool:
    """Make the monitor's observations of n different queries.

    Attributes:
        first_key: Number of the first key.
    """

    top: Float32
    random: Float32
    kept: Float32
    first_key: int = 0

    def __len__(self) -> int:
        return len(self.top)

    @classmethod
    def of(cls, vectors: Float32, release: Release, index: Index | None = None) -> "Pool":
        """Search an index with queries, the release's unless another is given, and cut as the release does."""
        index = index or release.retriever.index
        top = index.search(vectors, release.manifest.policy.k)
        positions = np.random.default_rng(0).integers(0, len(index), size=(len(vectors), _RANDOM))
        decisions = POLICIES[release.manifest.policy.kind].decide(top.scores, None)  # by similarity, as is the default
        kept = keep(decisions, release.retriever.policy.threshold).sum(axis=1)
        return cls(top.scores, index.score(vectors, positions), kept.astype(np.float32))

    def beside(self, other: "Pool") -> "Pool":
        """Join two pools: rows of the other follow those of this one."""
        return Pool(
            np.concatenate([self.top, other.top]),
            np.concatenate([self.random, other.random]),
            np.concatenate([self.kept, other.kept]),
        )

    def seen(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Observations:
        """The queries at `rows`, in that order, each with random documents of its own."""
        columns = rng.integers(0, _RANDOM, size=(len(rows), RANDOM_OF_A_QUERY))
        at = np.arange(len(rows), dtype=np.float64)
        keys = (self.first_key + rows).astype(np.uint64)
        random, components = self.random[rows[:, None], columns], np.empty((len(rows), 0), dtype=np.float32)
        return Observations(at, keys, self.top[rows], random, self.kept[rows], components)

    def draw(self, queries: int, rng: np.random.Generator) -> Observations:
        """Draw so many queries, independently and with replacement."""
        return self.seen(rng.integers(0, len(self), size=queries), rng)


@lru_cache(maxsize=8)
def released(data: Path, name: str, work: Path, *options: str) -> Release:
    """Return a release of a data set, calibrated when it is first asked for.

    It has no ρ and no lexical share, as `Pool` cuts by τ alone and searches by vectors.

    Args:
        data: Folder of the data sets.
        name: The data set.
        work: Folder of the releases directories, each named as its data set.
        options: Further options of `taugate calibrate`; the same in each call for a name.
    """
    folder = work / name
    if not (folder / "current").is_file():
        arguments = ["calibrate", str(data / name), "--releases", str(folder), *options]
        arguments += ["--refuse", "off", "--lexical", "off"]
        subprocess.run([sys.executable, "-m", "taugate", *arguments], check=True, env=environment())
    return load(find(folder))


def heldout(data: Path, name: str, release: Release) -> dict[str, set[str]]:
    """Answerable queries that the calibration did not use, with the ids of their relevant documents."""
    answerable = [(text, relevant) for text, relevant in labelled(data, name) if relevant]
    drawn = release.manifest.bootstrap
    split = HoldoutSplit.by_query(np.random.default_rng(drawn.seed), len(answerable), drawn.holdout)
    return dict(answerable[row] for row in split.heldout)


def labelled(data: Path, name: str) -> list[tuple[str, set[str]]]:
    """Read all queries of a data set, each with the ids of its relevant documents, if it has any."""
    relevant: dict[str, set[str]] = {}
    for line in (data / name / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) >= 1:
            relevant.setdefault(query, set()).add(document)
    return [(record["text"], relevant.get(record["_id"], set())) for record in _records(data / name)]


def judged(queries: dict[str, set[str]], vectors: Float32, release: Release) -> Float32:
    """Similarities with the relevant documents that were shown, one for each query that has one: the most similar."""
    found = release.retriever.answer([Query(text, release.manifest.policy.k) for text in queries], vectors)
    best = []
    for answer, relevant in zip(found, queries.values(), strict=True):
        shown = zip(answer.positions.tolist(), answer.scores.tolist(), strict=True)
        if correct := [score for position, score in shown if release.documents[position].id in relevant]:
            best.append(max(correct))
    return np.array(best, dtype=np.float32)


def asked(data: Path, name: str) -> list[str]:
    """Read all queries of a data set."""
    return [record["text"] for record in _records(data / name)]


def encoded(texts: Sequence[str], release: Release, kept: Path) -> Float32:
    """Their vectors, kept in a file, as this takes a while."""
    if not kept.is_file():
        vectors = np.empty((len(texts), release.retriever.index.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(texts), _BATCH):
            rows = order[start : start + _BATCH]
            vectors[rows] = release.retriever.vectors([texts[row] for row in rows])
        np.save(kept, vectors)
    found: Float32 = np.load(kept)
    return found


def _records(folder: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in (folder / "queries.jsonl").read_bytes().splitlines()]
