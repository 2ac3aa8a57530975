"""The files of a release beside its manifest."""

from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.accepted import AcceptedSearch
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.study.outcomes import Calibrated, drift_reference, golden_rows, query_outcomes
from taugate.calibration.study.questions import calibration_questions
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release import questions
from taugate.retrieval.release.corpus import CorpusFolder
from taugate.retrieval.release.decisions import ModelsFolder
from taugate.retrieval.release.encoders import EncoderFolder
from taugate.retrieval.release.folders import MeasuredFolder
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    OUTCOMES,
    PROJECTION,
    QUERY_FOLDER,
    QUESTIONS,
    REFERENCE,
)


def write_files(
    accepted: AcceptedSearch, calibrated: Calibrated, search: LabelledSearch, spool: Path, report: str, release: Path
) -> None:
    """Write every file of a release except its manifest.

    Args:
        accepted: The search that the gate accepted.
        calibrated: The study and its policy.
        search: The labelled queries with their results.
        spool: Folder to copy the texts from.
        report: The report as HTML.
        release: Empty folder to write into.

    Raises:
        OSError: If a file cannot be written.
    """
    if search.dataset.vectors is None:
        EncoderFolder(release / ENCODER_FOLDER).write((accepted.documents or accepted.encoder).folder)
        if accepted.documents is not None:
            EncoderFolder(release / QUERY_FOLDER).write(accepted.encoder.folder)
        if accepted.float32 is not None:
            EncoderFolder(release / FLOAT32_FOLDER).write(accepted.float32.folder)
    corpus = CorpusFolder(release)
    if accepted.engine is None:
        documents = DocumentStore(spool)
        corpus.write(vector_index(accepted.index), documents, Metadata.of(documents))
    if accepted.lexical_part is not None:
        corpus.write_words(accepted.lexical_part.words)
    ModelsFolder(release).write(
        None if calibrated.estimated is None else calibrated.estimated.relevance,
        None if calibrated.answer_rule is None else calibrated.answer_rule.score,
    )
    drift_reference(calibrated, calibrated.policy).save(release / REFERENCE)
    query_outcomes(calibrated, calibrated.policy).save(release / OUTCOMES)
    questions.write_calibration_questions(release / QUESTIONS, calibration_questions(calibrated))
    if accepted.projection is not None:
        accepted.projection.projection.save(release / PROJECTION)
    MeasuredFolder(release).write(_golden_queries(search, calibrated.parts["calibration"].members), report)


def _golden_queries(search: LabelledSearch, members: NDArray[np.int64]) -> list[GoldenQuery]:
    """Take evenly spaced calibration queries with their top-K as the service returns them.

    The calibration excludes a query's own document from its results; the service, which has no query ids, does not.
    """
    dataset, judged, top = search.dataset, search.judged, search.judged.top
    rows = golden_rows(members)
    golden = TopK(top.scores[rows], top.positions[rows])
    if any(dataset.answerable[row].own_passages for row in rows.tolist()):
        golden = search.index.search(search.encoded.answerable[rows], top.scores.shape[1])
    own = None if dataset.vectors is None else dataset.vectors.of_texts([query.text for query in dataset.answerable])
    return [
        GoldenQuery(
            text=dataset.answerable[row].text,
            relevant=_relevant_ids(dataset, judged, row),
            documents=[dataset.documents[position].id for position in positions],
            scores=scores,
            vector=None if own is None else own[row].tolist(),
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
