"""The gate asked of an engine itself: what its collection finds, against exact search of the same vectors.

A broader search finds more, and takes longer. So breadths are tested from the broadest down, each at the whole error of
the gate, until one is not admitted: a narrower one is only looked at where all broader ones were admitted, so that
testing several needs no correction (fixed-sequence testing, as in `calibration/risk/bounds.py`).
"""

from collections.abc import Callable, Sequence

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.engines.search import ProposedIndex, ShardedIndex
from taugate.calibration.gate.admit import gate_settings
from taugate.calibration.gate.baseline import DEPTH, Admitted, RankingOutcomes
from taugate.calibration.gate.gate import GateCandidate, gate_line, judge
from taugate.calibration.gate.indexes import MISSED, share_found
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.own_documents import max_own, own_of
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.settings import MARGIN, CalibrationSettings
from taugate.errors import ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import SPARE
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.records import GateRecord
from taugate.retrieval.vectors.similarity import StoredVectors

BREADTHS = (1024, 512, 256, 128, 64, 32)


def admit_engine(  # noqa: PLR0913, PLR0917 (all that a calibration has by now)
    dataset: Dataset,
    encoded: EncodedTexts,
    vectors: StoredVectors,
    encoder: OnnxEncoder,
    engine: Engine,
    record: EngineRecord,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Choose how broadly the engine searches: the narrowest that is admitted, and finds what the margin wants.

    Args:
        dataset: Data set that is calibrated on.
        encoded: Its vectors, by `encoder`.
        vectors: Of its documents.
        engine: That holds the collection of `record`.
        part: The calibration queries.
        settings: Of the calibration.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stage "gate" grows.

    Raises:
        ReleaseError: Where the engine is not admitted, for there is nothing else to serve from.
    """
    members, units, parents = part.members, part.resamples.units, dataset.documents.parents
    queries = [dataset.answerable[position] for position in members.tolist()]
    asked, depth = encoded.answerable[members], max(settings.k, DEPTH) + max_own(own_of(queries))

    def outcomes(top: TopK) -> RankingOutcomes:
        return RankingOutcomes.judge(queries, top.positions, settings.k, parents)

    with watch.stage("gate"):
        exact_index = ShardedIndex(vectors)
        exact = exact_index.search(asked, depth)
        gate = gate_settings(settings.candidates, units, 1, say)
        wanted = 1 - MISSED * (gate.margin or MARGIN)
        baseline = outcomes(exact)
        tried: list[GateRecord] = []
        chosen: tuple[EngineRecord, ProposedIndex, float] | None = None
        share = 0.0
        for breadth in _breadths(depth):
            searched = record.model_copy(update={"breadth": breadth})
            index = ProposedIndex(engine, searched, vectors)
            found = index.search(asked, depth)
            share = share_found(exact_index, asked, exact, found)
            if chosen is not None and share < wanted:
                break
            (judged,) = judge(baseline, [GateCandidate(_name(searched), "engine", outcomes(found))], units, gate)
            tried.append(judged)
            say(gate_line(judged))
            if not judged.admitted:
                break
            chosen = searched, index, share
    if chosen is None:
        raise ReleaseError(_refusal(tried[0], share))
    record, index, share = chosen
    return Admitted(
        encoder,
        encoded,
        index,
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


def _breadths(depth: int) -> Sequence[int]:
    """Return the breadths to try, the broadest first; an engine is asked for depth + SPARE candidates at least."""
    return [breadth for breadth in BREADTHS if breadth >= depth + SPARE] or [depth + SPARE]


def _name(record: EngineRecord) -> str:
    return f"{record.kind}, breadth {record.breadth}"


def _refusal(judged: GateRecord, share: float) -> str:
    if judged.verdict == "worse":
        why = "its search is not good enough; check that its index is as uploaded, or calibrate with a larger --margin"
    else:
        why = (
            "these queries cannot show that it loses no more than the margin; label more, or calibrate with a larger "
            "--margin"
        )
    return (
        f"{judged.candidate}: the engine is not admitted, so that no release is written: it finds {100 * share:.2f} % "
        f"of the exact results, and {why}"
    )
