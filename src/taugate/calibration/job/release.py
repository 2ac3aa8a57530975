"""From findings to a release: the facts of its manifest, and every file beside it."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.gate.baseline import Admitted
from taugate.calibration.metrics.documents import chance_of_a_hit
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.provisional.state import AvailableEvidence, calibration_record
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.study import Findings
from taugate.drift.sensitivity import sensitivity
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery
from taugate.registry.writer import CorpusContents, copy_encoder
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import OFFSETS, TEXTS, DocumentStore
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    GOLDEN,
    OUTCOMES,
    PROJECTION,
    QUERY_FOLDER,
    REFERENCE,
)
from taugate.retrieval.release.manifest import BootstrapRecord
from taugate.retrieval.release.query_arrays import Outcomes, Reference
from taugate.retrieval.vectors.similarity import Float32

# Enough for any wrong encoder or index to show, few enough to ask at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


def manifest_facts(
    dataset: Dataset,
    admitted: Admitted,
    found: Findings,
    settings: CalibrationSettings,
    adaptation: AdaptationRecord | None = None,
) -> dict[str, Any]:
    """Collect the manifest less what only the writer knows: schema version, ids, times and files.

    Args:
        dataset: Labelled queries and documents.
        admitted: What the gate admitted.
        found: Findings of the study.
        settings: Of the calibration.
        adaptation: Of the encoder, None where it was not adapted.
    """
    answerable, unanswerable = len(dataset.answerable), len(dataset.unanswerable)
    passages = len(dataset.documents)
    chance = chance_of_a_hit(dataset.answerable, dataset.documents.parents, passages, settings.k)
    return {
        "taugate_version": version("taugate"),
        "data": {
            "name": dataset.name,
            "split": dataset.split,
            "documents": passages,
            "queries": answerable + unanswerable,
            "answerable": answerable,
            "unanswerable": unanswerable,
            "truncated_documents": admitted.encoded.truncated_documents,
            "empty_documents": dataset.empty or None,
            "own_documents": dataset.own_documents or None,
            "sha256": dataset.sha256,
        },
        "encoder": _encoder_facts(admitted.documents or admitted.encoder),
        "query_encoder": None if admitted.documents is None else _encoder_facts(admitted.encoder),
        "float32_encoder": None if admitted.float32 is None else _encoder_facts(admitted.float32),
        "projection": admitted.projection and admitted.projection.record,
        "index": admitted.index_record,
        "policy": found.policy,
        "bootstrap": {name: getattr(settings, name) for name in BootstrapRecord.model_fields},
        "metrics": found.metrics,
        "alternatives": found.alternatives,
        "relevance": found.relevance,
        "isotropy": asdict(found.isotropy),
        "query_set": found.query_set,
        "evidence": found.units.record,
        "strata": found.strata,
        "calibration": calibration_record(
            _seen_hits(dataset, found), AvailableEvidence.count(dataset, settings.k, adaptation), chance
        ),
        "abstention": found.abstention and found.abstention.record,
        "no_answer": found.no_answer,
        "labels": found.labels,
        "drift": sensitivity(drift_reference(found), settings.overlap_percentile),
        "gate": list(admitted.gate),
        "golden": GOLDEN,
        "golden_tolerance": admitted.golden_tolerance,
        "reference": REFERENCE,
        "adaptation": adaptation,
        "engine": admitted.engine,
    }


def _encoder_facts(encoder: OnnxEncoder) -> dict[str, Any]:
    return encoder.config.model_dump() | {"sha256": encoder.sha256}


def _seen_hits(dataset: Dataset, found: Findings) -> NDArray[np.bool_]:
    """Return which answerable queries are hits, less those whose misses nobody could have seen."""
    hits: NDArray[np.bool_] = found.scored.judged.accuracy() > 0
    if dataset.others is None:
        return hits
    return hits[[query.id not in dataset.others.seen_only for query in dataset.answerable]]


@dataclass(frozen=True)
class ReleaseContents:
    """Everything that a release holds beside its manifest.

    Attributes:
        admitted: What the gate admitted.
        documents: Folder of the texts, to copy from.
        golden: Queries with their results, for checks at load.
        outcomes: What each query got.
        found: Findings of the study.
        report: The page for people, whole.
    """

    admitted: Admitted
    documents: Path
    golden: list[GoldenQuery]
    outcomes: Outcomes
    found: Findings
    report: str

    def fill(self, release: Path) -> None:
        """Write every file into an empty folder, `release`."""
        if self.admitted.documents is None:
            copy_encoder(self.admitted.encoder.folder, release / ENCODER_FOLDER)
        else:
            copy_encoder(self.admitted.documents.folder, release / ENCODER_FOLDER)
            copy_encoder(self.admitted.encoder.folder, release / QUERY_FOLDER)
        if self.admitted.float32 is not None:
            copy_encoder(self.admitted.float32.folder, release / FLOAT32_FOLDER)
        here = self.admitted.engine is None
        if here:
            for name in (TEXTS, OFFSETS):
                shutil.copyfile(self.documents / name, release / name)
        drift_reference(self.found).save(release / REFERENCE)
        self.outcomes.save(release / OUTCOMES)
        if self.admitted.projection is not None:
            self.admitted.projection.projection.save(release / PROJECTION)
        CorpusContents(
            index=self.found.index if here else None,
            metadata=Metadata.of(DocumentStore(self.documents)) if here else Metadata(),
            relevance=None if self.found.estimated is None else self.found.estimated.relevance,
            answer_score=None if self.found.abstention is None else self.found.abstention.rule.score,
            golden=self.golden,
            report=self.report,
        ).write(release)


def drift_reference(found: Findings) -> Reference:
    """Collect the distributions that drift is measured against.

    Args:
        found: Findings of the study.
    """
    part = found.parts["calibration"]
    queries = found.scored.take(part.members)
    kept = queries.kept(found.policy.kind, found.threshold)
    relevance = queries.relevance if found.policy.kind == "probability" else None  # else nothing is compared with it
    relevant = queries.judged.relevant
    return Reference(
        top=queries.judged.top.scores,
        correct=queries.judged.correct,
        random=part.random_scores,
        kept=kept.sum(axis=1),
        correct_kept=queries.judged.accuracy(kept) > 0,
        relevance=relevance,
        correct_relevance=None if relevance is None else np.where(relevant, relevance, np.float32(0)).max(axis=1),
    )


def golden_queries(dataset: Dataset, found: Findings, vectors: Float32) -> list[GoldenQuery]:
    """Take evenly spaced calibration queries with their top-K, as the service finds them.

    The service leaves no query out of its own results: it knows texts, and no ids of queries.

    Args:
        dataset: Texts of the queries.
        found: Findings of the study.
        vectors: (n, d) float32, of the answerable queries.
    """
    members, top = found.parts["calibration"].members, found.scored.judged.top
    chosen = np.unique(np.linspace(0, len(members) - 1, num=min(_GOLDEN_QUERIES, len(members))).astype(int))
    rows = members[chosen]
    golden = TopK(top.scores[rows], top.positions[rows])
    if any(dataset.answerable[row].own for row in rows.tolist()):
        golden = found.index.search(vectors[rows], top.scores.shape[1])
    return [
        GoldenQuery(
            text=dataset.answerable[row].text,
            relevant=_relevant_ids(dataset, found.scored.judged, row),
            documents=[dataset.documents[position].id for position in positions],
            scores=scores,
        )
        for row, positions, scores in zip(rows.tolist(), golden.positions.tolist(), golden.scores.tolist(), strict=True)
    ]


def _relevant_ids(dataset: Dataset, judged: JudgedQueries, row: int) -> list[str]:
    """List the ids of a query's relevant documents, of single chunks where the qrels name these, and of its hits.

    A document of many chunks has one id here, and not all of theirs.
    """
    query, documents = dataset.answerable[row], dataset.documents
    chunks = query.chunks or {}
    whole = [documents[position].document_id for position in query.relevant if position not in chunks]
    passages = [*chain.from_iterable(chunks.values()), *judged.top.positions[row][judged.relevant[row]].tolist()]
    return [*dict.fromkeys([*whole, *(documents[position].id for position in passages)])]


def query_outcomes(dataset: Dataset, found: Findings) -> Outcomes:
    """Collect what each query got: the held-out queries, else those that calibrated, and all unanswerable ones.

    Args:
        dataset: Texts of the queries.
        found: Findings of the study.
    """
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
    """Digest the texts of queries, (q,) uint64; the texts stay with whoever labelled them."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
