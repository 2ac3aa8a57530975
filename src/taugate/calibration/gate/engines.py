"""The gate for an engine's own search, compared with exact search of the same documents by the same score.

A broader search finds more and takes longer. Breadths are tested from the broadest down, each at the full error of the
gate, until one is not accepted. A narrower breadth is tested only if all broader ones were accepted, so no correction
is needed (fixed-sequence testing, as in `calibration/risk/bounds.py`).
"""

from collections.abc import Sequence

from taugate.calibration.encoding.corpus import EncodedTexts, with_words
from taugate.calibration.engines.search import ProposedIndex, ShardedHybridIndex, ShardedIndex
from taugate.calibration.gate.accept import gate_settings
from taugate.calibration.gate.baseline import DEPTH, AcceptedSearch, LexicalPart, RankingOutcomes
from taugate.calibration.gate.gate import GateCandidate, gate_line, judge
from taugate.calibration.gate.indexes import MISSED, share_found
from taugate.calibration.gate.lexical import choose_lexical
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.metrics.own_documents import max_own_passages, own_passages_of
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import MARGIN, CalibrationSettings
from taugate.errors import ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.hybrid import NEAREST, EngineHybridIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import SPARE
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.search_records import GateRecord
from taugate.retrieval.vectors.similarity import StoredVectors

BREADTHS = (1024, 512, 256, 128, 64, 32)


def accept_engine(  # noqa: PLR0913, PLR0917 (the state of the calibration)
    dataset: Dataset,
    encoded: EncodedTexts,
    vectors: StoredVectors,
    encoder: OnnxEncoder,
    engine: Engine,
    record: EngineRecord,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
) -> AcceptedSearch:
    """Choose the lexical part, and the narrowest breadth that is accepted and has enough recall for the margin.

    Args:
        dataset: Data set of the calibration.
        encoded: Its vectors, by `encoder`.
        vectors: Vectors of its documents.
        encoder: Encoder of the queries.
        engine: Engine that holds the collection of `record`.
        record: Record of the collection.
        drawn: All answerable queries, which judge.
        settings: Settings of the calibration.
        job: Reports progress and warnings, and times the stages.

    Raises:
        ReleaseError: If the engine is not accepted, because no other index could serve.
    """
    queries, units = dataset.answerable, drawn.units
    depth = max(settings.k, DEPTH) + max_own_passages(own_passages_of(queries))

    def outcomes(top: TopK) -> RankingOutcomes:
        return RankingOutcomes.judge(queries, top.positions, settings.k, dataset.documents.parents)

    with job.stage("gate"):
        tried: list[GateRecord] = []
        lexical: LexicalPart | None = None
        if settings.candidates.lexical != "off":
            worded = with_words(encoded, dataset)
            tried, lexical = choose_lexical(
                dataset,
                drawn,
                settings,
                lambda part: outcomes(_exact(vectors, part).search(worded.answerable, depth)),
                job,
            )
            encoded = encoded if lexical is None else worded
        exact_index, query_vectors = _exact(vectors, lexical), encoded.answerable
        exact = exact_index.search(query_vectors, depth)
        gate = gate_settings(settings.candidates, units, 1, job)
        min_recall = 1 - MISSED * (gate.margin or MARGIN)
        baseline = outcomes(exact)
        chosen: tuple[EngineRecord, Index, float] | None = None
        share = 0.0
        for breadth in _breadths(depth if lexical is None else depth + NEAREST):
            searched = record.model_copy(update={"breadth": breadth})
            proposed = ProposedIndex(engine, searched, vectors)
            index = proposed if lexical is None else EngineHybridIndex(proposed, *lexical)
            results = index.search(query_vectors, depth)
            share = share_found(exact_index, query_vectors, exact, results)
            if chosen is not None and share < min_recall:
                break
            (gate_record,) = judge(baseline, [GateCandidate(_name(searched), "engine", outcomes(results))], units, gate)
            tried.append(gate_record)
            job.report(gate_line(gate_record))
            if not gate_record.admitted:
                break
            chosen = searched, index, share
    if chosen is None:
        raise ReleaseError(_refusal(tried[-1], share))
    record, accepted_index, share = chosen
    return AcceptedSearch(
        encoder,
        encoded,
        accepted_index,
        IndexRecord(
            kind="hnsw",
            metric="cosine",
            documents=record.rows,
            breadth=record.breadth,
            recall=share,
            depth=exact.positions.shape[1],
        ),
        gate=tuple(tried),
        engine=record,
    )


def _exact(vectors: StoredVectors, lexical: LexicalPart | None) -> Index:
    """Return exact search by the score with a lexical part, or by the cosine for None."""
    index = ShardedIndex(vectors)
    return index if lexical is None else ShardedHybridIndex(index, *lexical)


def _breadths(depth: int) -> Sequence[int]:
    """Return the breadths to try, the broadest first, all of at least depth + SPARE candidates."""
    return [breadth for breadth in BREADTHS if breadth >= depth + SPARE] or [depth + SPARE]


def _name(record: EngineRecord) -> str:
    return f"{record.kind}, breadth {record.breadth}"


def _refusal(gate_record: GateRecord, share: float) -> str:
    if gate_record.verdict == "worse":
        reason = "that is not enough; check that its index is as uploaded, or calibrate with a larger --margin"
    else:
        reason = (
            "these queries cannot show that it loses less than the margin; add labels, or calibrate with a larger "
            "--margin"
        )
    return (
        f"{gate_record.candidate}: the gate does not accept the engine, so no release is written: it finds "
        f"{100 * share:.2f} % of the exact results, and {reason}"
    )
