"""The gate for an engine's own search, compared with exact search of the same documents by the same score.

A broader search finds more and takes longer. Breadths are tested from the broadest down, each at the full error of the
gate, until one is not accepted. A narrower breadth is tested only if all broader ones were accepted, so no correction
is needed (fixed-sequence testing, as in `calibration/risk/bounds.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taugate.calibration.acceptance.accept import gate_settings
from taugate.calibration.acceptance.accepted import AcceptedSearch, LexicalPart
from taugate.calibration.acceptance.baseline import DEPTH, RankingOutcomes
from taugate.calibration.acceptance.gate import GateCandidate, gate_line, judge
from taugate.calibration.acceptance.indexes import MISSED, share_found
from taugate.calibration.acceptance.lexical import choose_lexical
from taugate.calibration.encoding.corpus import EncodedTexts, with_words
from taugate.calibration.engines.search import ProposedIndex, ShardedHybridIndex, ShardedIndex
from taugate.calibration.engines.upload import UploadedCorpus
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.own_documents import max_own_passages, own_passages_of
from taugate.calibration.settings.settings import MARGIN
from taugate.errors import ReleaseError
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.hybrid import NEAREST, EngineHybridIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import SPARE
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.search_records import GateRecord
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.retrieval.vectors.similarity import StoredVectors

BREADTHS = (1024, 512, 256, 128, 64, 32)


def accept_engine(
    inputs: CalibrationInputs, encoder: ExportedEncoder, encoded: EncodedTexts, corpus: UploadedCorpus, candidates: int
) -> AcceptedSearch:
    """Choose the lexical part, and the narrowest breadth that is accepted and has enough recall for the margin.

    Args:
        inputs: The data set and the settings; all answerable queries judge.
        encoder: Encoder of the queries.
        encoded: Vectors of the data set, by `encoder`.
        corpus: The corpus in the engine.
        candidates: Number of results that a second stage scores; 0 with one stage.

    Raises:
        ReleaseError: If the engine is not accepted, because no other index could serve.
    """
    dataset, settings = inputs.dataset, inputs.settings
    depth = max(settings.k, DEPTH, candidates) + max_own_passages(own_passages_of(dataset.answerable))

    def outcomes(top: TopK) -> RankingOutcomes:
        return RankingOutcomes.judge(dataset.answerable, top.positions, settings.k, dataset.documents.parents)

    with inputs.job.stage("gate"):
        tried: list[GateRecord] = []
        lexical: LexicalPart | None = None
        if settings.candidates.lexical != "off":
            worded = with_words(encoded, dataset)
            tried, lexical = choose_lexical(
                inputs, lambda part: outcomes(_exact(corpus.vectors, part).search(worded.answerable, depth))
            )
            encoded = encoded if lexical is None else worded
        exact = _exact(corpus.vectors, lexical)
        search = _EngineSearch(corpus, lexical, exact, encoded.answerable, exact.search(encoded.answerable, depth))
        records, chosen = _narrowest(search, outcomes, inputs)
    tried += records
    record, index, share = chosen
    return AcceptedSearch(
        encoder,
        encoded,
        index,
        IndexRecord(
            kind="hnsw", metric="cosine", documents=record.rows, breadth=record.breadth, recall=share, depth=depth
        ),
        lexical_part=lexical,
        gate=tuple(tried),
        engine=record,
    )


@dataclass(frozen=True)
class _EngineSearch:
    """The search of an engine at any breadth, and exact search to compare it with.

    Attributes:
        corpus: The corpus in the engine.
        lexical: Lexical part of the score, None if the score is the cosine.
        exact: Exact search.
        queries: (q, d) vectors.
        results: (q, c) results of exact search.
    """

    corpus: UploadedCorpus
    lexical: LexicalPart | None
    exact: Index
    queries: QueryVectors
    results: TopK

    @property
    def depth(self) -> int:
        """Number of results for each query."""
        return int(self.results.positions.shape[1])

    def at(self, record: EngineRecord) -> Index:
        """Return the index that searches with the breadth of a record."""
        proposed = ProposedIndex(self.corpus.engine, record, self.corpus.vectors)
        return proposed if self.lexical is None else EngineHybridIndex(proposed, *self.lexical)


def _narrowest(
    search: _EngineSearch, outcomes: Callable[[TopK], RankingOutcomes], inputs: CalibrationInputs
) -> tuple[list[GateRecord], tuple[EngineRecord, Index, float]]:
    """Test breadths from the broadest down.

    Returns the records, and the narrowest accepted breadth: its record, its index and its share of the exact results.
    """
    gate = gate_settings(inputs.settings.candidates, inputs.units, 1, inputs.job)
    min_recall = 1 - MISSED * (gate.margin or MARGIN)
    baseline = outcomes(search.results)
    tried: list[GateRecord] = []
    chosen: tuple[EngineRecord, Index, float] | None = None
    share = 0.0
    for breadth in _breadths(search.depth if search.lexical is None else search.depth + NEAREST):
        searched = search.corpus.record.model_copy(update={"breadth": breadth})
        index = search.at(searched)
        results = index.search(search.queries, search.depth)
        share = share_found(search.exact, search.queries, search.results, results)
        if chosen is not None and share < min_recall:
            break
        candidate = GateCandidate(_name(searched), "engine", outcomes(results))
        (gate_record,) = judge(baseline, [candidate], inputs.units, gate)
        tried.append(gate_record)
        inputs.job.report(gate_line(gate_record))
        if not gate_record.admitted:
            break
        chosen = searched, index, share
    if chosen is None:
        raise ReleaseError(_refusal(tried[-1], share))
    return tried, chosen


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
