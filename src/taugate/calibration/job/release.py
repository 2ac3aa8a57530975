"""The contents of a release: the facts of its manifest, and every file beside it."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.refusal import share_at_most
from taugate.calibration.gate.baseline import AcceptedSearch
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
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    GOLDEN,
    LEXICAL,
    OUTCOMES,
    PROJECTION,
    QUERY_FOLDER,
    REFERENCE,
)
from taugate.retrieval.release.manifest import BootstrapRecord
from taugate.retrieval.release.query_arrays import Outcomes, Reference
from taugate.retrieval.release.search_records import LexicalRecord
from taugate.retrieval.release.summary import LostAnswers, summary_sentence
from taugate.retrieval.vectors.queries import QueryVectors

# Enough to reveal a wrong encoder or index, few enough to run at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


def manifest_facts(
    dataset: Dataset,
    accepted: AcceptedSearch,
    findings: Findings,
    settings: CalibrationSettings,
    adaptation: AdaptationRecord | None = None,
) -> dict[str, Any]:
    """Collect the manifest except for what the writer adds: schema version, ids, times and files.

    Args:
        dataset: Labelled queries and documents.
        accepted: The search that the gate accepted.
        findings: Findings of the study.
        settings: Settings of the calibration.
        adaptation: Record of the encoder's adaptation, None if it was not adapted.
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
            "truncated_documents": accepted.encoded.truncated_documents,
            "empty_documents": dataset.empty or None,
            "own_documents": dataset.own_documents or None,
            "sha256": dataset.sha256,
        },
        "encoder": _encoder_facts(accepted.documents or accepted.encoder),
        "query_encoder": None if accepted.documents is None else _encoder_facts(accepted.encoder),
        "float32_encoder": None if accepted.float32 is None else _encoder_facts(accepted.float32),
        "projection": accepted.projection and accepted.projection.record,
        "index": accepted.index_record,
        "policy": findings.policy,
        "bootstrap": {name: getattr(settings, name) for name in BootstrapRecord.model_fields},
        "metrics": findings.metrics,
        "alternatives": findings.alternatives,
        "relevance": findings.relevance,
        "isotropy": findings.isotropy.model_dump(),
        "query_set": findings.query_set,
        "evidence": findings.units.record,
        "strata": findings.strata,
        "calibration": calibration_record(
            _seen_hits(dataset, findings), AvailableEvidence.count(dataset, settings.k, adaptation), chance
        ),
        "abstention": findings.abstention and findings.abstention.record,
        "refusal": findings.refusal and findings.refusal.record,
        "summary": summary(findings),
        "no_answer": findings.no_answer,
        "labels": findings.labels,
        "drift": sensitivity(drift_reference(findings), settings.overlap_percentile),
        "gate": list(accepted.gate),
        "golden": GOLDEN,
        "golden_tolerance": accepted.golden_tolerance,
        "reference": REFERENCE,
        "adaptation": adaptation,
        "engine": accepted.engine,
        "lexical": _lexical_record(accepted.index),
    }


def _lexical_record(index: Index) -> LexicalRecord | None:
    return LexicalRecord.of(index) if isinstance(index, HybridIndex) else None


def summary(findings: Findings) -> str:
    """Write the release's summary, from the held-out queries, else from the calibration queries."""
    members = findings.parts["heldout" if "heldout" in findings.parts else "calibration"].members
    queries = findings.scored.take(members)
    kept = queries.kept(findings.policy.kind, findings.threshold)
    answered, found = kept.any(axis=1), np.flatnonzero(queries.judged.accuracy() > 0)
    lost = queries.judged.accuracy(kept)[found] == 0
    answers = None
    if len(found):
        limit = share_at_most(lost, findings.units.take(members[found]))
        answers = LostAnswers(int(lost.sum()), len(found), limit)
    mean = float(kept[answered].sum(axis=1).mean()) if answered.any() else 0.0
    refusal = None if findings.refusal is None else findings.refusal.record
    return summary_sentence(mean, findings.policy.k, answers, refusal)


def _encoder_facts(encoder: OnnxEncoder) -> dict[str, Any]:
    return encoder.config.model_dump() | {"sha256": encoder.sha256}


def _seen_hits(dataset: Dataset, findings: Findings) -> NDArray[np.bool_]:
    """Return which answerable queries are hits, (q,) bool, without queries whose misses no user could have judged."""
    hits: NDArray[np.bool_] = findings.scored.judged.accuracy() > 0
    if dataset.other_queries is None:
        return hits
    return hits[[query.id not in dataset.other_queries.seen_only for query in dataset.answerable]]


@dataclass(frozen=True)
class ReleaseContents:
    """Every file of a release except its manifest.

    Attributes:
        accepted: The search that the gate accepted.
        documents: Folder to copy the texts from.
        golden: Queries with their results, for checks at load.
        outcomes: Outcome of each query.
        findings: Findings of the study.
        report: The report as HTML.
    """

    accepted: AcceptedSearch
    documents: Path
    golden: list[GoldenQuery]
    outcomes: Outcomes
    findings: Findings
    report: str

    def fill(self, release: Path) -> None:
        """Write every file into an empty folder, `release`."""
        if self.accepted.documents is None:
            copy_encoder(self.accepted.encoder.folder, release / ENCODER_FOLDER)
        else:
            copy_encoder(self.accepted.documents.folder, release / ENCODER_FOLDER)
            copy_encoder(self.accepted.encoder.folder, release / QUERY_FOLDER)
        if self.accepted.float32 is not None:
            copy_encoder(self.accepted.float32.folder, release / FLOAT32_FOLDER)
        stored_here = self.accepted.engine is None
        if stored_here:
            for name in (TEXTS, OFFSETS):
                shutil.copyfile(self.documents / name, release / name)
        elif isinstance(self.accepted.index, HybridIndex):
            self.accepted.index.lexical.save(release / LEXICAL)
        drift_reference(self.findings).save(release / REFERENCE)
        self.outcomes.save(release / OUTCOMES)
        if self.accepted.projection is not None:
            self.accepted.projection.projection.save(release / PROJECTION)
        CorpusContents(
            index=self.findings.index if stored_here else None,
            metadata=Metadata.of(DocumentStore(self.documents)) if stored_here else Metadata(),
            relevance=None if self.findings.estimated is None else self.findings.estimated.relevance,
            answer_score=None if self.findings.answer_rule is None else self.findings.answer_rule.score,
            golden=self.golden,
            report=self.report,
        ).write(release)


def drift_reference(findings: Findings) -> Reference:
    """Collect the distributions that drift is measured against."""
    part = findings.parts["calibration"]
    queries = findings.scored.take(part.members)
    kept = queries.kept(findings.policy.kind, findings.threshold)
    relevance = queries.relevance if findings.policy.kind == "probability" else None  # only this policy compares it
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


def golden_queries(dataset: Dataset, findings: Findings, vectors: QueryVectors) -> list[GoldenQuery]:
    """Take evenly spaced calibration queries with their top-K as the service returns them.

    The calibration excludes a query's own document from its results; the service, which has no query ids, does not.

    Args:
        dataset: Texts of the queries.
        findings: Findings of the study.
        vectors: (n, d) float32 vectors of the answerable queries.
    """
    members, top = findings.parts["calibration"].members, findings.scored.judged.top
    chosen = np.unique(np.linspace(0, len(members) - 1, num=min(_GOLDEN_QUERIES, len(members))).astype(int))
    rows = members[chosen]
    golden = TopK(top.scores[rows], top.positions[rows])
    if any(dataset.answerable[row].own_passages for row in rows.tolist()):
        golden = findings.index.search(vectors[rows], top.scores.shape[1])
    return [
        GoldenQuery(
            text=dataset.answerable[row].text,
            relevant=_relevant_ids(dataset, findings.scored.judged, row),
            documents=[dataset.documents[position].id for position in positions],
            scores=scores,
        )
        for row, positions, scores in zip(rows.tolist(), golden.positions.tolist(), golden.scores.tolist(), strict=True)
    ]


def _relevant_ids(dataset: Dataset, judged: JudgedQueries, row: int) -> list[str]:
    """List the ids of a query's relevant documents, or of single chunks if the qrels name chunks, and of its hits.

    A relevant document appears with its own id, not with those of all its chunks.
    """
    query, documents = dataset.answerable[row], dataset.documents
    chunks = query.chunks or {}
    document_ids = [documents[position].document_id for position in query.relevant if position not in chunks]
    passages = [*chain.from_iterable(chunks.values()), *judged.top.positions[row][judged.relevant[row]].tolist()]
    return [*dict.fromkeys([*document_ids, *(documents[position].id for position in passages)])]


def query_outcomes(dataset: Dataset, findings: Findings) -> Outcomes:
    """Collect the outcomes of the held-out queries (else the calibration queries) and of all unanswerable ones."""
    members = findings.parts["heldout" if "heldout" in findings.parts else "calibration"].members
    queries, kind = findings.scored.take(members), findings.policy.kind
    kept = queries.kept(kind, findings.threshold)
    return Outcomes(
        query=_digests([dataset.answerable[row] for row in members.tolist()]),
        cluster=findings.units.clusters[members],
        hit=queries.judged.accuracy() > 0,
        hit_kept=queries.judged.accuracy(kept) > 0,
        ndcg=queries.judged.ndcg(),
        ndcg_kept=queries.judged.ndcg(kept),
        kept=kept.sum(axis=1),
        unanswerable=_digests(dataset.unanswerable),
        unanswerable_kept=queries.unanswerable_kept(kind, findings.threshold).sum(axis=1),
    )


def _digests(queries: Sequence[LabelledQuery]) -> NDArray[np.uint64]:
    """Digest the texts of queries, (q,) uint64; a release does not contain the texts."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
