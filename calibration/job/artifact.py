"""What each query got, for the release: of those that had the least say, as in the last part of its metrics."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.study import Findings
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import OFFSETS, TEXTS, DocumentStore
from taugate.retrieval.release.contents import CorpusContents, copy_encoder
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    OUTCOMES,
    PROJECTION,
    REFERENCE,
)
from taugate.retrieval.release.outcomes import Outcomes
from taugate.retrieval.release.reference import Reference
from taugate.retrieval.vectors.projection import Projection

# Enough for any wrong encoder or index to show, few enough to ask at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


@dataclass(frozen=True)
class Contents:
    """Everything a release holds beside its manifest.

    encoder, documents: folders to copy from; float32: that of the encoder which one in int8 was made of; report: the
    page for people, whole.
    """

    encoder: Path
    float32: Path | None
    documents: Path
    golden: list[GoldenQuery]
    outcomes: Outcomes
    found: Findings
    projection: Projection | None
    report: str

    def fill(self, release: Path) -> None:
        """Write every file into an empty folder."""
        copy_encoder(self.encoder, release / ENCODER_FOLDER)
        if self.float32 is not None:
            copy_encoder(self.float32, release / FLOAT32_FOLDER)
        for name in (TEXTS, OFFSETS):
            shutil.copyfile(self.documents / name, release / name)
        reference_of(self.found).save(release / REFERENCE)
        self.outcomes.save(release / OUTCOMES)
        if self.projection is not None:
            self.projection.save(release / PROJECTION)
        CorpusContents(
            index=self.found.index,
            metadata=Metadata.of(DocumentStore(self.documents)),
            relevance=None if self.found.estimated is None else self.found.estimated.relevance,
            answer_score=None if self.found.abstention is None else self.found.abstention.rule.score,
            golden=self.golden,
            report=self.report,
        ).write(release)


def reference_of(found: Findings) -> Reference:
    """What drift is measured against."""
    part = found.parts["calibration"]
    queries = found.scored.take(part.members)
    kept = queries.kept(found.policy.kind, found.threshold)
    return Reference(
        top=queries.judged.top.scores,
        correct=queries.judged.correct,
        random=part.random_scores,
        kept=kept.sum(axis=1),
        correct_kept=queries.judged.accuracy(kept) > 0,
    )


def golden_queries(dataset: Dataset, found: Findings) -> list[GoldenQuery]:
    """Evenly spaced calibration queries with their top-K."""
    members, top = found.parts["calibration"].members, found.scored.judged.top
    chosen = np.unique(np.linspace(0, len(members) - 1, num=min(_GOLDEN_QUERIES, len(members))).astype(int))
    return [
        GoldenQuery(
            text=dataset.answerable[row].text,
            relevant=[dataset.documents[position].id for position in dataset.answerable[row].relevant],
            documents=[dataset.documents[position].id for position in top.positions[row].tolist()],
            scores=top.scores[row].tolist(),
        )
        for row in members[chosen].tolist()
    ]


def outcomes(dataset: Dataset, found: Findings) -> Outcomes:
    """Of the held-out queries, else of those that calibrated; of all unanswerable ones."""
    members = found.parts["heldout" if "heldout" in found.parts else "calibration"].members
    queries, kind = found.scored.take(members), found.policy.kind
    kept = queries.kept(kind, found.threshold)
    return Outcomes(
        query=_digests([dataset.answerable[row] for row in members.tolist()]),
        cluster=found.units.labels[members],
        hit=queries.judged.accuracy() > 0,
        hit_kept=queries.judged.accuracy(kept) > 0,
        ndcg=queries.judged.ndcg(),
        ndcg_kept=queries.judged.ndcg(kept),
        kept=kept.sum(axis=1),
        unanswerable=_digests(dataset.unanswerable),
        unanswerable_kept=queries.unanswerable_kept(kind, found.threshold).sum(axis=1),
    )


def _digests(queries: Sequence[LabelledQuery]) -> NDArray[np.uint64]:
    """The texts stay with whoever labelled them."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
