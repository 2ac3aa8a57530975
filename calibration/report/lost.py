"""List the queries that the cut loses: a relevant document was retrieved for them, and none was kept."""

import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.beir import Dataset

MOST = 20
_LENGTH = 300


@dataclass(frozen=True)
class RetrievedDocument:
    """A retrieved document.

    id, title, text: shortened; rank: from 1, in the uncut list; score: similarity; relevance: probability, None without
    a model; decision: what was compared with τ.
    """

    id: str
    title: str
    text: str
    rank: int
    score: float
    relevance: float | None
    decision: float


@dataclass(frozen=True)
class LostQuery:
    """A query that the cut loses.

    id, text: shortened; part: calibration or heldout; lost: its most similar relevant document; top: the first result,
    where it is another.
    """

    id: str
    text: str
    part: str
    lost: RetrievedDocument
    top: RetrievedDocument | None


@dataclass(frozen=True)
class LostQueries:
    """All queries that the cut loses.

    total: how many; first: some of them, those with the most similar relevant document.
    """

    total: int
    first: list[LostQuery]


def lost_queries(dataset: Dataset, found: Findings) -> LostQueries:
    """Find the lost queries among all answerable ones, whichever part they are in.

    dataset: texts of queries and documents; found: findings of the study.
    """
    positions, ranks = lost_positions(found)
    heldout = set(found.parts["heldout"].members.tolist()) if "heldout" in found.parts else set()
    first = []
    for row, rank in zip(positions[:MOST].tolist(), ranks[:MOST].tolist(), strict=True):
        query = dataset.answerable[row]
        first.append(
            LostQuery(
                query.id,
                shortened(query.text),
                "heldout" if row in heldout else "calibration",
                _document(dataset, found, row, rank),
                _document(dataset, found, row, 0) if rank else None,
            )
        )
    return LostQueries(len(positions), first)


def lost_positions(found: Findings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions of the lost queries, and the rank, from 0, of the best relevant document.

    the most similar first.

    A query that is refused as a whole is not lost to the cut. found: findings of the study.
    """
    judged = found.scored.judged
    kept = found.scored.kept(found.policy.kind, found.threshold)
    lost = judged.lost("accuracy", kept) > 0
    if found.scored.answering is not None:
        lost &= kept.any(axis=1)
    positions = np.flatnonzero(lost)
    ranks = (judged.grades[positions] >= 1).argmax(axis=1)
    order = np.argsort(-judged.top.scores[positions, ranks], kind="stable")
    return positions[order], ranks[order]


def _document(dataset: Dataset, found: Findings, row: int, rank: int) -> RetrievedDocument:
    scored = found.scored
    document = dataset.documents[int(scored.judged.top.positions[row, rank])]
    return RetrievedDocument(
        id=document.id,
        title=shortened(document.title or ""),
        text=shortened(document.text),
        rank=rank + 1,
        score=float(scored.judged.top.scores[row, rank]),
        relevance=None if scored.relevance is None else float(scored.relevance[row, rank]),
        decision=float(scored.decisions(found.policy.kind)[row, rank]),
    )


def shortened(text: str, length: int = _LENGTH) -> str:
    """Cut a text between words, on one line and without control characters; text: any; length: characters, at most."""
    clean = "".join(" " if unicodedata.category(each) == "Cc" else each for each in text[: 4 * length])
    words = " ".join(clean.split())
    if len(words) <= length:
        return words
    head = words[:length]
    return (head.rsplit(" ", 1)[0] if " " in head[length // 2 :] else head) + " …"
