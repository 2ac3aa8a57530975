"""A data set as evaluators take it, and what its release says each of its queries got."""

import hashlib
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.release.layout import OUTCOMES
from taugate.release.queries import Outcomes

UNCUT = -1.0  # as a threshold of similarity: no cosine is below it

Scores = dict[str, float]  # of queries, by their ids


@dataclass(frozen=True)
class LabelledSet:
    """A data set in the layout of BEIR.

    Attributes:
        name: Of its folder.
        corpus: Title and text of each document by its id.
        queries: Texts by id, of those that `qrels` names, in the order of their file.
        qrels: The grade, 1 or more, of each relevant document, by query.
    """

    name: str
    corpus: dict[str, tuple[str, str]]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]

    @classmethod
    def read(cls, folder: Path, split: str = "test") -> Self:
        """Read a data set, less its unanswerable queries: no evaluator has a place for them."""
        lines = (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        qrels: dict[str, dict[str, int]] = {}
        for query, document, grade in (line.split("\t") for line in lines):
            if int(grade) >= 1:
                qrels.setdefault(query, {})[document] = int(grade)
        corpus = {
            record["_id"]: (record.get("title") or "", record["text"]) for record in _records(folder / "corpus.jsonl")
        }
        queries = {each["_id"]: each["text"] for each in _records(folder / "queries.jsonl") if each["_id"] in qrels}
        return cls(folder.name, corpus, queries, qrels)

    def part(self, most: int, seed: int) -> "LabelledSet":
        """Draw a part of the queries, in the order of their file."""
        drawn = {*random.Random(seed).sample([*self.queries], min(most, len(self.queries)))}  # noqa: S311
        queries = {query: text for query, text in self.queries.items() if query in drawn}
        return replace(self, queries=queries, qrels={query: self.qrels[query] for query in queries})

    def write(self, source: Path, folder: Path) -> None:
        """Write the data set as `taugate calibrate` reads it, with the files of `source` that stay the same."""
        (folder / "qrels").mkdir(parents=True)
        for name in ("corpus.jsonl", "queries.jsonl"):
            (folder / name).symlink_to(source / name)
        lines = [
            f"{query}\t{document}\t{grade}" for query in self.qrels for document, grade in self.qrels[query].items()
        ]
        text = "\n".join(["query-id\tcorpus-id\tscore", *lines])
        (folder / "qrels" / "test.tsv").write_text(f"{text}\n", encoding="utf-8")


@dataclass(frozen=True)
class ReleaseOutcomes:
    """NDCG@K of each query as `outcomes.safetensors` has it.

    Attributes:
        uncut: Of all K results.
        kept: Of those that pass the threshold.
    """

    uncut: Scores
    kept: Scores

    @classmethod
    def read(cls, release: Path, queries: dict[str, str], k: int) -> Self:
        """Read those of a release that held nothing out.

        Raises:
            ValueError: If the release was made of other queries.
        """
        found = Outcomes.load(release / OUTCOMES, k)
        if found.query.tolist() != [_digest(text) for text in queries.values()]:
            raise ValueError(f"{release}: has outcomes of other queries; calibrate this split with --holdout 0")
        return cls(_scores(queries, found.ndcg), _scores(queries, found.ndcg_kept))


def mean(scores: Scores) -> float:
    """Return the plain mean over the queries."""
    return float(np.mean([*scores.values()]))


def _scores(queries: dict[str, str], values: NDArray[np.float64]) -> Scores:
    return dict(zip(queries, values.tolist(), strict=True))


def _digest(text: str) -> int:
    """Return the number by which releases know a query (calibration/study/outcomes.py)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _records(path: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
