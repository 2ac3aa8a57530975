"""Tries the requested candidates, in this process or in an engine, and keeps those that the gate accepts.

The lexical share comes first, because it changes the score. Precision follows, then projection, then index. Each of
these builds on the previously accepted candidates and is compared with the same exact, unprojected float32 baseline, so
that the complete configuration has passed. Their error is divided among the requested kinds (Bonferroni).

All labelled answerable queries judge, held-out ones included: no candidate is fitted on them, except projections, which
are always judged on queries that they were not fitted on.

The gate for an engine's own search, compared with exact search of the same documents by the same score. A broader
search finds more and takes longer. Breadths are tested from the broadest down, each at the full error of the gate,
until one is not accepted. A narrower breadth is tested only if all broader ones were accepted, so no correction is
needed (fixed-sequence testing, as in `evidence/risk/certify.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from taugate.calibration.acceptance import cheaper_search
from taugate.calibration.acceptance.baseline import AcceptedSearch, GateState, LexicalPart, SearchTrial
from taugate.calibration.acceptance.better_lists import add_lexical, choose_lexical
from taugate.calibration.acceptance.projection import VARIANTS, try_projection
from taugate.calibration.encoding.corpus import EncodedTexts, with_words
from taugate.calibration.engines import ProposedIndex, ShardedHybridIndex, ShardedIndex, UploadedCorpus
from taugate.calibration.metrics.inputs import CalibrationInputs, max_own_passages, own_passages_of, ranking_outcomes
from taugate.calibration.progress import Job
from taugate.calibration.settings import CandidateSettings
from taugate.errors import ReleaseError
from taugate.evidence.acceptance import DEPTH, GateCandidate, RankingOutcomes, gate_line, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.evidence.rules import MARGIN, GateSettings, default_margin
from taugate.policy.arrays import QueryVectors, StoredVectors, require_in_memory
from taugate.release.engine import EngineRecord
from taugate.release.manifest import IndexRecord
from taugate.release.search_records import GateRecord
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.corpus import NEAREST, EngineHybridIndex
from taugate.retrieval.index.flat import SPARE
from taugate.retrieval.index.top_k import Index, TopK

BREADTHS = (1024, 512, 256, 128, 64, 32)


def accept_candidates(inputs: CalibrationInputs, encoder: ExportedEncoder, encoded: EncodedTexts) -> AcceptedSearch:
    """Try the candidates that the settings request."""
    dataset, settings, job = inputs.dataset, inputs.settings, inputs.job
    cheaper, documents = settings.candidates, require_in_memory(encoded.documents)
    trial = SearchTrial.build(dataset.answerable, encoded.answerable, documents, settings.k, dataset.documents.parents)
    with job.stage("gate"):
        tried, state = add_lexical(GateState.exact(encoder, encoded, trial), inputs)
    if not cheaper.requested:
        return replace(state.accepted, gate=tuple(tried))
    baseline, scale = state.trial, cheaper_search.scan_scale(encoder, documents.shape[1])
    kinds = cheaper_search.requested_kinds(cheaper.index, len(dataset.documents), scale)
    gate = gate_settings(cheaper, inputs.units, max(1, len(kinds), cheaper.projection == "auto" and len(VARIANTS)), job)
    if "precision" in cheaper.requested:
        records, state = cheaper_search.try_precisions(inputs, baseline, state, gate)
        tried += _reported(records, job)
    with job.stage("gate"):
        if "projection" in cheaper.requested:
            records, state = try_projection(inputs, baseline, state, gate)
            tried += _reported(records, job)
        if kinds:
            records, state = cheaper_search.try_indexes(inputs.units, baseline, state, kinds, gate)
            tried += _reported(records, job)
        return replace(
            state.accepted, gate=tuple(tried), golden_tolerance=cheaper_search.golden_tolerance(baseline, state)
        )


def accept_updated_index(inputs: CalibrationInputs, state: GateState) -> AcceptedSearch:
    """Build the index of an updated corpus with the encoder and projection that were accepted before.

    Only the index is tested again, against exact search of the same vectors.

    Args:
        inputs: The data set, and the settings with the kind of index.
        state: Exact search of the updated documents with the accepted encoder and projection.
    """
    settings, units, job = inputs.settings, inputs.units, inputs.job
    kinds = cheaper_search.requested_kinds(settings.candidates.index, len(state.trial.documents))
    if not kinds:
        return state.accepted
    with job.stage("gate"):
        gate = gate_settings(settings.candidates, units, len(kinds), job)
        records, indexed = cheaper_search.try_indexes(units, state.trial, state, kinds, gate)
        return replace(indexed.accepted, gate=tuple(_reported(records, job)))


def _reported(records: Sequence[GateRecord], job: Job) -> Sequence[GateRecord]:
    for record in records:
        job.report(gate_line(record))
    return records


def gate_settings(cheaper: CandidateSettings, units: SamplingUnits, candidates: int, job: Job) -> GateSettings:
    """Divide the error among the requested kinds, and choose a margin that these queries can show if none is set.

    Args:
        candidates: Largest number of candidates of one kind, or of sequences of them, that divide the error once
            more.
        job: Reports a margin that is widened or too small for these queries.
    """
    confidence = 1 - (1 - cheaper.gate.confidence) / max(1, len(cheaper.requested))
    margin, detectable = cheaper.gate.margin, min_detectable_loss(units, 1 - (1 - confidence) / candidates)
    if margin is None:
        margin = default_margin(MARGIN, detectable)
        if margin > MARGIN:
            job.report(
                f"warning: the gate's margin is {margin:g} in place of {MARGIN:g}, because {units.words} cannot show a "
                "smaller loss; add labels or set margin"
            )
    if margin < detectable:
        job.report(
            f"warning: the gate's margin is {margin:g}, but with {units.words} the gate cannot detect a loss below "
            f"{detectable:.4f}, so it will accept almost nothing; add labels or raise margin"
        )
    return GateSettings(margin, confidence)


def accept_engine(
    inputs: CalibrationInputs, encoder: ExportedEncoder, encoded: EncodedTexts, corpus: UploadedCorpus, candidates: int
) -> AcceptedSearch:
    """Choose the lexical part, and the narrowest breadth that is accepted and has enough recall for the margin.

    Args:
        candidates: Number of results that a second stage scores; 0 with one stage.
    """
    dataset, settings = inputs.dataset, inputs.settings
    depth = max(settings.k, DEPTH, candidates) + max_own_passages(own_passages_of(dataset.answerable))

    def outcomes(top: TopK) -> RankingOutcomes:
        return ranking_outcomes(dataset.answerable, top.positions, settings.k, dataset.documents.parents)

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
    """The search of an engine at any breadth, and exact search to compare it with."""

    corpus: UploadedCorpus
    lexical: LexicalPart | None  # lexical part of the score, None if the score is the cosine
    exact: Index
    queries: QueryVectors  # (q, d) vectors
    results: TopK  # (q, c) results of exact search

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
    min_recall = 1 - cheaper_search.MISSED * (gate.margin or MARGIN)
    baseline = outcomes(search.results)
    tried: list[GateRecord] = []
    chosen: tuple[EngineRecord, Index, float] | None = None
    share = 0.0
    narrowest = search.depth + SPARE + (0 if search.lexical is None else NEAREST)
    for breadth in [breadth for breadth in BREADTHS if breadth >= narrowest] or [narrowest]:
        searched = search.corpus.record.model_copy(update={"breadth": breadth})
        index = search.at(searched)
        results = index.search(search.queries, search.depth)
        share = cheaper_search.share_found(search.exact, search.queries, search.results, results)
        if chosen is not None and share < min_recall:
            break
        candidate = GateCandidate(_name(searched), "engine", outcomes(results), exact=search.corpus.engine.exact)
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


def _name(record: EngineRecord) -> str:
    return f"{record.kind}, breadth {record.breadth}"


def _refusal(gate_record: GateRecord, share: float) -> str:
    if gate_record.verdict == "worse":
        reason = "that is not enough; check that its index is as uploaded, or calibrate with a larger margin"
    else:
        reason = (
            "these queries cannot show that it loses less than the margin; add labels, or calibrate with a larger "
            "margin"
        )
    return (
        f"{gate_record.candidate}: the gate does not accept the engine, so no release is written: it finds "
        f"{100 * share:.2f} % of the exact results, and {reason}"
    )
