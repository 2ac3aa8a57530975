"""Measures gates on an agent's memory: passages arrive one by one, and most questions are about none that is stored."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks.calibration.changed_documents import command
from benchmarks.encoding import encoded_queries, encoded_set
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.data.questions import off_topic_sent
from taugate.policy.arrays import Float32, Float64, dense_of
from taugate.registry.catalog import find
from taugate.retrieval.gate import Gate, ScoredResult

HEADING = "What an agent remembers: useless and lost"
SETS = ("squadshifts_new_wiki", "squadshifts_reddit")  # options were chosen on the first one
K = 5
_DEPTH = 20
_PASSAGES, _QUESTIONS, _LABELLED = 2000, 300, 60
_NOT_STORED = 0.65  # share of the questions
_FIRST = 100  # passages before the first question
_STREAMS = 50
Kept = NDArray[np.bool_]  # (n, K)

_EXPECTED = 'holdout = 0\nguarantee = "expected-loss"\n'
_RELATIVE = ("--policy", "relative", "--max-loss")
# Name, weight of shared words in the score, options of calibrate-run, keys of its --settings.
GATES: Sequence[tuple[str, float, Sequence[str], str]] = (
    ("gate, default", 0, (), ""),
    ("gate, certified: `--max-loss 0.05`", 0, ("--max-loss", "0.05"), ""),
    ("gate, expected loss .1, `--policy relative`", 0, (*_RELATIVE, "0.1"), _EXPECTED),
    ("…, .2, score plus shared words", 1, (*_RELATIVE, "0.2"), _EXPECTED),
    ("…, and `--max-answered 0.3`", 1, (*_RELATIVE, "0.2", "--max-answered", "0.3"), _EXPECTED),
)


@dataclass(frozen=True)
class Results:
    """Results of n questions, best first: passages, their scores, and which are right."""

    passages: NDArray[np.int64]  # (n, depth)
    scores: Float64  # (n, depth)
    right: NDArray[np.bool_]  # (n, depth)
    names: Sequence[str]  # of the questions
    stored: NDArray[np.bool_]  # (n,) whether the passage of the question was stored

    def part(self, rows: slice) -> "Results":
        """Return some of the questions."""
        parts = (self.passages[rows], self.scores[rows], self.right[rows], self.names[rows], self.stored[rows])
        return Results(*parts)

    def listed(self, row: int) -> list[ScoredResult]:
        """Return the results of a question in the form that `Gate.cut` takes."""
        pairs = zip(self.passages[row].tolist(), self.scores[row].tolist(), strict=True)
        return [ScoredResult(str(passage), score, None) for passage, score in pairs]

    def write(self, run: Path) -> None:
        """Write a run."""
        with run.open("w", encoding="utf-8") as file:
            for row, name in enumerate(self.names):
                results = [{"id": result.id, "score": result.score} for result in self.listed(row)]
                file.write(json.dumps({"query_id": name, "results": results}) + "\n")


@dataclass(frozen=True)
class Memory:
    """Passages of a set in the order of their arrival, and questions between these arrivals.

    Attributes:
        vectors: (N, d) of the passages.
        words: (N, V) whether a passage has a word.
        questions: Texts; the questions that come with Taugate are last.
        asked: (n, d) their vectors.
        answer: Passage that a question is about, -1 for an off-topic one.
        times: How many passages are stored when a question is asked.
        counter: Splits texts into words.
    """

    vectors: Float32
    words: sparse.csc_array
    questions: Sequence[str]
    asked: Float32
    answer: NDArray[np.int64]
    times: NDArray[np.int64]
    counter: CountVectorizer

    @classmethod
    def draw(cls, world: "World", seed: int) -> Self:
        """Draw the order in which passages arrive, and the questions between them."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(world.vectors))[:_PASSAGES]
        arrival = np.full(len(world.vectors), -1)
        arrival[order] = np.arange(len(order))
        answer = arrival[world.answer]
        pool, chosen = rng.permutation(np.flatnonzero(answer >= 0)), list[int]()
        times = np.linspace(_FIRST, len(order) - 1, _QUESTIONS).astype(np.int64)
        for time in times:
            new = rng.random() < _NOT_STORED
            place = np.flatnonzero((answer[pool] >= time) == new)[0]
            chosen.append(int(pool[place]))
            pool = np.delete(pool, place)
        off_topic = [question.text for question in off_topic_sent(world.questions)]
        return cls(
            world.vectors[order],
            world.words[order].tocsc(),
            [*(world.questions[query] for query in chosen), *off_topic],
            np.concatenate([world.asked[chosen], encoded_queries(off_topic)]),
            np.concatenate([answer[chosen], np.full(len(off_topic), -1)]),
            np.concatenate([times, np.full(len(off_topic), times[_LABELLED])]),
            world.counter,
        )

    def search(self, weight: float) -> Results:
        """Answer every question from what is stored then; `weight`: of shared words, beside the cosine."""
        found = [self._search(query, weight) for query in range(len(self.questions))]
        passages = np.array([of for of, _ in found])
        return Results(
            passages,
            np.array([scores for _, scores in found]),
            passages == self.answer[:, None],
            [f"q{number}" for number in range(len(found))],
            (self.answer >= 0) & (self.answer < self.times),
        )

    def _search(self, query: int, weight: float) -> tuple[NDArray[np.int64], Float64]:
        time = self.times[query]
        scores = (self.vectors[:time] @ self.asked[query]).astype(np.float64)
        if weight:
            scores += weight * self._shared(self.questions[query], time)
        best = np.argsort(-scores, kind="stable")[:_DEPTH]
        return best, scores[best]

    def _shared(self, question: str, time: int) -> Float64:
        """Return which share of the question's words, weighted by their rarity, stands in each stored passage."""
        words = {*self.counter.build_analyzer()(question)}
        columns = [self.counter.vocabulary_[word] for word in words if word in self.counter.vocabulary_]
        present = self.words[:, columns].toarray()[:time]
        rarity = np.log((time + 1) / (present.sum(axis=0) + 0.5))
        whole = rarity.sum() + (len(words) - len(columns)) * np.log((time + 1) / 0.5)
        return np.asarray(present @ rarity / max(whole, 1e-9), dtype=np.float64)


@dataclass(frozen=True)
class World:
    """A data set whose questions are about one passage each."""

    vectors: Float32
    words: sparse.csr_array
    questions: Sequence[str]
    asked: Float32
    answer: NDArray[np.int64]
    counter: CountVectorizer

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and encode a data set."""
        with tempfile.TemporaryDirectory() as spool:
            dataset, encoded = encoded_set(folder, "test", Path(spool))
            texts = [document.encoded_text for document in dataset.documents]
        counter = CountVectorizer(binary=True)
        words = sparse.csr_array(counter.fit_transform(texts))
        queries = dataset.answerable
        answer = np.array([next(iter(query.relevant)) for query in queries])
        asked = dense_of(encoded.answerable)
        return cls(encoded.documents, words, [query.text for query in queries], asked, answer, counter)


def calibrated(results: Results, off_topic: Results, options: Sequence[str], settings: str) -> Gate | None:
    """Calibrate a gate on labelled questions; None if no threshold can be had."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        results.write(folder / "run.jsonl")
        off_topic.write(folder / "run.jsonl.off-topic.jsonl")
        lines = ["query-id\tcorpus-id\tscore"]
        for row, name in enumerate(results.names):
            right = results.passages[row, :K][results.right[row, :K]].tolist()
            lines.append(f"{name}\t{right[0]}\t1" if right else f"{name}\t-\t0")
        (folder / "judged.tsv").write_text("\n".join(lines) + "\n", "utf-8")
        (folder / "settings.toml").write_text(settings, "utf-8")
        files = (folder / "run.jsonl", folder / "judged.tsv", "--settings", folder / "settings.toml")
        code, _ = command("calibrate-run", *files, "--releases", folder / "gates", "--force", *options)
        return Gate.load(find(folder / "gates", None)) if code == 0 else None


def kept_by(gate: Gate | None, results: Results) -> Kept:
    """Return which of the first K results a gate keeps, (n, K) bool; without a gate, all of them."""
    kept = np.ones((len(results.names), K), dtype=np.bool_)
    for row in range(len(kept) if gate else 0):
        ranks = [result.rank for result in gate.cut(results.listed(row)).results] if gate else []
        kept[row] = np.isin(np.arange(1, K + 1), ranks)
    return kept


def by_hand(results: Results) -> Iterator[tuple[str, Kept]]:
    """Yield what is kept without a gate and by rules that need no label."""
    scores = results.scores[:, :K]
    yield "no gate", np.ones_like(scores, dtype=np.bool_)
    yield "cosine ≥ .7", scores >= 0.7
    yield "≥ .9 of the best", scores >= 0.9 * scores[:, :1]
    yield "autocut: largest gap", np.arange(K) <= np.argmax(scores[:, :-1] - scores[:, 1:], axis=1)[:, None]


def in_hindsight(results: Results, name: str) -> Iterator[tuple[str, Kept]]:
    """Yield what is kept by one who knows which questions have an answer: the best result of these."""
    yield name, results.stored[:, None] & (np.arange(K) == 0)


def measure(world: World, seed: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the name of each rule and its counts: useless, injected, lost and right results, and 1 without a threshold."""
    memory = Memory.draw(world, seed)
    searched = {weight: memory.search(weight) for weight in (0.0, 1.0)}
    unseen, labelled, off_topic = slice(_LABELLED, _QUESTIONS), slice(_LABELLED), slice(_QUESTIONS, None)
    cosine, shared = searched[0].part(unseen), searched[1].part(unseen)
    rules = [(cosine, name, kept, False) for name, kept in by_hand(cosine)]
    for name, weight, options, settings in GATES:
        results = searched[weight]
        gate = calibrated(results.part(labelled), results.part(off_topic), options, settings)
        rules.append((results.part(unseen), name, kept_by(gate, results.part(unseen)), gate is None))
    rules += [(cosine, *rule, False) for rule in in_hindsight(cosine, "in hindsight: best of the answerable")]
    rules += [(shared, *rule, False) for rule in in_hindsight(shared, "…, score plus shared words")]
    for results, name, kept, none in rules:
        right = results.right[:, :K]
        yield name, np.array([(kept & ~right).sum(), kept.sum(), (right & ~kept).sum(), right.sum(), none])


def section(experiment: Experiment) -> str:
    """Measure streams of every set."""
    streams, names = experiment.part(_STREAMS), experiment.wanted(SETS)
    rows: list[list[str]] = []
    for name in names:
        world = World.read(experiment.data / name)
        measured = [[*measure(world, experiment.seed + stream)] for stream in range(streams)]
        rules = [rule for rule, _ in measured[0]]
        sums = np.array([[numbers for _, numbers in each] for each in measured]).sum(axis=0)
        rows = rows or [[rule] for rule in rules]
        for row, (useless, injected, lost, right, none) in zip(rows, sums.tolist(), strict=True):
            missing = f" ({none} without τ)" if none else ""
            row += [share(useless / max(1, injected), 2) + missing, share(lost / right, 2)]
    header = ["rule", *(f"{name.split('_', 1)[1]}: {what}" for name in names for what in ("useless", "lost"))]
    return f"""\
Up to {_PASSAGES:,} passages arrive one by one, in {streams} random orders; {100 * _NOT_STORED:.0f} % of {_QUESTIONS} questions between them are about a
passage that is not stored yet. The first {_LABELLED} are judged and calibrate, the others count. *Useless*: share of injected results not judged
right; *lost*: dropped share of right ones among the first {K}. Options were chosen on {SETS[0]}. Without τ, all is injected.

{table(header, rows)}

Wanted were .15 and .05: **not reached**. Some 21 answerable labels certify no such loss, and near misses score like answers. Even one who
knows which questions have an answer, and injects one result, fails. By default, ρ ignores so few right answers, and off-topic
questions are not off topic on reddit.
"""
