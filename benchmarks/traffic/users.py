"""Simulated users of a public set: they ask, see what the service shows them, and judge some of it."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.labels.machine import losses
from taugate.calibration.metrics.clusters import Labels, clusters
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, ShownResult, line_bytes
from taugate.ingestion.dataset.beir import CORPUS, LabelledQuery, read_dataset
from taugate.ingestion.dataset.judgements import TRAFFIC
from taugate.ingestion.labels.traffic import learn_from_traffic
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.exploration import Exploration
from taugate.retrieval.policy.policy import Policy
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors.similarity import Float32

K = 5
_COLLECTION = "users"  # as the data set is called in the log
_ASKS = 20_000
NOISE = 0.1  # of judgements that say the opposite
_KEYS = 100  # users, each with an API key
# Of the first place; of place i it is this by √i (Joachims, Swaminathan and Schnabel, WSDM 2017, take 1/i to a power).
_JUDGES_FIRST = 0.4


@dataclass(frozen=True)
class SearchedSet:
    """A public set, searched once.

    Attributes:
        folder: Of the set.
        retriever: Without a threshold.
        queries: q texts.
        vectors: (q, d) of these.
        decisions: (q, K) similarities.
        relevant: (q, K).
        documents: (q,) clusters.
    """

    folder: Path
    retriever: Retriever
    queries: list[str]
    vectors: Float32
    decisions: Float32
    relevant: NDArray[np.bool_]
    documents: Labels

    @classmethod
    def read(cls, data: Path, name: str) -> Self:
        """Search the answerable queries of a set.

        Args:
            data: Folder of the public sets.
            name: Of the set.
        """
        with tempfile.TemporaryDirectory() as spool:
            found = IndexedSet.read(data / name, "test", DEFAULT_ENCODER, Path(spool))
            asked, vectors = found.dataset.answerable, found.encoded.answerable
            judged = JudgedQueries.judge(asked, vectors, found.index, K)
            retriever = Retriever(
                OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER)), found.index, Policy("none", None, K)
            )
            texts = [each.text for each in asked]
            relevant = judged.grades >= 1
            return cls(data / name, retriever, texts, vectors, judged.top.scores, relevant, clusters(asked))

    def loss(self, queries: NDArray[np.int64], tau: float) -> float:
        """Return the share of queries that a threshold loses."""
        thresholds = np.array([tau], np.float32)
        return float(losses(self.relevant[queries], self.decisions[queries], thresholds).mean())

    def kept(self, queries: NDArray[np.int64], tau: float) -> float:
        """Return the share of results that a threshold keeps."""
        return float((self.decisions[queries] >= np.float32(tau)).mean())


@dataclass(frozen=True)
class Traffic:
    """Labels from judged traffic.

    Attributes:
        labelled: The answerable queries as `taugate traffic` writes them.
        rows: Their places in the set.
        relevant: (n, K), what users say of their results.
    """

    labelled: list[LabelledQuery]
    rows: NDArray[np.int64]
    relevant: NDArray[np.bool_]

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each query, (n,)."""
        return np.array([each.weight for each in self.labelled])


def judged_traffic(
    searched: SearchedSet,
    queries: NDArray[np.int64],
    tau: float,
    *,
    share: float,
    rng: np.random.Generator,
) -> Traffic:
    """Let users ask and judge, write what the service would log, and learn from the log.

    Args:
        queries: That users ask, (n,) places in the set.
        tau: In force.
        share: Of exploration.
        rng: Draws who asks what, and what is judged.
    """
    retriever = Retriever(searched.retriever.encoder, searched.retriever.index, Policy("similarity", tau, K))
    exploration = Exploration(share, "release") if share else None
    asked = [Query(searched.queries[row], K, exploration=exploration) for row in queries.tolist()]
    answers = retriever.answer(asked, searched.vectors[queries])
    names = _document_names(searched.folder)
    lines: list[bytes] = []
    # Some queries are asked often and most of them seldom: Zipf's law.
    popularity = 1 / np.arange(1, len(queries) + 1) ** 0.8
    drawn = rng.choice(rng.permutation(len(queries)), _ASKS, p=popularity / popularity.sum())
    for number, row in enumerate(drawn.tolist()):
        key = f"user{rng.integers(_KEYS)}"
        lines += _request(number, asked[row].text, key, answers[row], names)
        lines += _judgements(number, key, answers[row], names, searched.relevant[queries[row]], rng)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / _COLLECTION
        folder.mkdir()
        (folder / CORPUS).symlink_to(searched.folder / CORPUS)
        (Path(place) / "log").write_bytes(b"".join(lines))
        learn_from_traffic([Path(place) / "log"], folder)
        (Path(place) / "spool").mkdir()
        labelled = read_dataset(folder, TRAFFIC, Path(place) / "spool").answerable
    place_of = {text: row for row, text in zip(queries.tolist(), (query.text for query in asked), strict=True)}
    rows = np.array([place_of[each.text] for each in labelled])
    found = retriever.index.search(searched.vectors[rows], K).positions
    relevant = np.array(
        [[position in each.relevant for position in row] for row, each in zip(found, labelled, strict=True)]
    )
    return Traffic(labelled, rows, relevant)


def _request(number: int, text: str, key: str, answer: Answer, names: list[str]) -> list[bytes]:
    shown = zip(answer.positions, answer.ranks, answer.scores, answer.propensities, strict=True)
    assert answer.uncut is not None  # noqa: S101 (for the type checker: there is no filter)
    return [
        line_bytes(
            LoggedQuery(
                at=float(number),
                query_id=f"{number:032x}",
                query=text,
                key=key,
                collection=_COLLECTION,
                release="release",
                filter=None,
                k=K,
                threshold=None,
                group_by=None,
                kept=answer.uncut.kept,
                topk=answer.uncut.scores.tolist(),
                random=[0.0],
                shown=[
                    ShownResult(id=names[position], rank=int(rank), score=float(score), propensity=float(propensity))
                    for position, rank, score, propensity in shown
                ],
            )
        )
    ]


def _judgements(
    number: int, key: str, answer: Answer, names: list[str], relevant: NDArray[np.bool_], rng: np.random.Generator
) -> list[bytes]:
    """Judge what is shown, the first places most often.

    Args:
        relevant: (K,) of the uncut list.
    """
    lines = []
    for place, (position, rank, score) in enumerate(zip(answer.positions, answer.ranks, answer.scores, strict=True), 1):
        if rng.random() < _JUDGES_FIRST / place**0.5:
            said = bool(relevant[rank - 1]) ^ (rng.random() < NOISE)
            lines.append(
                line_bytes(
                    LoggedJudgement(
                        at=float(number),
                        query_id=f"{number:032x}",
                        query=None,
                        document_id=names[position],
                        relevant=bool(said),
                        rank=None,
                        score=float(score),
                        key=key,
                        collection=_COLLECTION,
                        release="release",
                    )
                )
            )
    return lines


def _document_names(folder: Path) -> list[str]:
    return [orjson.loads(line)["_id"] for line in (folder / CORPUS).read_bytes().splitlines()]
