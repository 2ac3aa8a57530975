"""Adds a lexical share to the score if the gate shows that it makes the list better.

The score becomes cosine + weight · share (`retrieval/index/lexical.py`). Each weight of a small grid answers the same
queries as the cosine alone, and has to raise NDCG@10 without losing accuracy@K; Holm's method keeps the chance that a
weight that does not help is accepted below 1 − confidence. Of the accepted weights the largest is taken, so no query
has a say in that choice. All labelled queries decide which are accepted, also those that certify a loss; certificates
hold as often as for a weight that was fixed before (docs/gate.md).

The lexical share claims to be better, and cheaper candidates claim to lose little. They are separate decisions, so the
lexical share takes nothing from the error of the cheaper candidates, which are compared with the score chosen here.
"""

from collections.abc import Callable, Sequence

from taugate.calibration.acceptance.accepted import LexicalPart
from taugate.calibration.acceptance.baseline import GateState, RankingOutcomes
from taugate.calibration.acceptance.gate import GateCandidate, gate_line, judge
from taugate.calibration.encoding.corpus import with_words
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.splits import MIN_CALIBRATING
from taugate.calibration.provisional.state import AvailableEvidence
from taugate.calibration.risk.paired import min_detectable_loss
from taugate.calibration.settings.settings import MARGIN, GateSettings, default_margin
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.release.search_records import GateRecord

# Ascending. Smaller weights gain less, larger ones hardly more, on seven data sets (docs/benchmarks/hybrid.md).
GRID = (0.3, 0.5, 0.7, 1.0)
# Queries made from documents share words with them, so they always choose the largest weight, even if people's queries
# lose by it. This is the largest weight that loses on none of seven data sets (docs/benchmarks/hybrid.md).
PROVISIONAL_WEIGHT = 0.2

# Returns the outcomes of exact search by the score with a lexical part, or by the cosine for None.
Outcomes = Callable[[LexicalPart | None], RankingOutcomes]


def add_lexical(state: GateState, inputs: CalibrationInputs) -> tuple[list[GateRecord], GateState]:
    """Choose the lexical part of the score for a search in this process.

    Args:
        state: Exact search of the float32 encoder's vectors.
        inputs: The data set and the settings.

    Returns:
        The records, and the new state, or `state` itself if the score stays the cosine.
    """
    if inputs.settings.candidates.lexical == "off":
        return [], state
    worded = state.with_encoded(with_words(state.accepted.encoded, inputs.dataset))

    def outcomes(lexical: LexicalPart | None) -> RankingOutcomes:
        return (state if lexical is None else worded.with_lexical(lexical)).trial.outcomes()

    records, lexical = choose_lexical(inputs, outcomes)
    return records, state if lexical is None else worded.with_lexical(lexical)


def choose_lexical(inputs: CalibrationInputs, outcomes: Outcomes) -> tuple[list[GateRecord], LexicalPart | None]:
    """Index the words of the documents, and choose the weight of the lexical share.

    A weight that the settings give is used as it is, and only judged. Without enough evidence by people, `auto` uses
    the default weight.

    Args:
        inputs: The data set and the settings, in which the share is not off.
        outcomes: Returns the outcomes of exact search by the score with a lexical part, or by the cosine for None.

    Returns:
        The records, and the lexical part, None if the score stays the cosine.
    """
    dataset, settings, job = inputs.dataset, inputs.settings, inputs.job
    words = LexicalIndex.of(document.encoded_text for document in dataset.documents)
    choice = settings.candidates.lexical
    given = None if isinstance(choice, str) else choice
    if given is None and AvailableEvidence.count(dataset, settings.k).reasons:
        job.report(f"lexical weight {PROVISIONAL_WEIGHT:g}, the default without enough queries by people to choose one")
        return [], LexicalPart(words, PROVISIONAL_WEIGHT)
    if given is not None and len(inputs.drawn.parts["calibration"].members) < MIN_CALIBRATING:
        job.report(f"lexical weight {given:g}, as given; there are too few queries to judge it")
        return [], LexicalPart(words, given)
    parts = [LexicalPart(words, weight) for weight in (GRID if given is None else (given,))]
    records, chosen = _judged(parts, given, inputs, outcomes)
    as_given = "" if given is None else f"lexical weight {given:g}, as given; "
    job.report(as_given + _line(records, chosen))
    return records, chosen


def _judged(
    parts: Sequence[LexicalPart], given: float | None, inputs: CalibrationInputs, outcomes: Outcomes
) -> tuple[list[GateRecord], LexicalPart | None]:
    """Judge weights by all labelled queries, and use the given one, or the largest accepted one if there is any.

    Args:
        parts: Lexical part of each weight.
        given: Weight that is used whatever the records say; None for the largest accepted one.
        inputs: See `choose_lexical`.
        outcomes: Returns the outcomes of exact search.
    """
    measured = [outcomes(part) for part in parts]
    candidates = [GateCandidate(_name(part), "lexical", outcome) for part, outcome in zip(parts, measured, strict=True)]
    requested, units = inputs.settings.candidates.gate, inputs.units
    confidence = requested.confidence
    detectable = min_detectable_loss(units, 1 - (1 - confidence) / len(candidates))
    gate = GateSettings(requested.margin or default_margin(MARGIN, detectable), confidence)
    records = judge(outcomes(None), candidates, units, gate, superior=True)
    if given is not None:
        return records, parts[0]
    accepted = [place for place, record in enumerate(records) if record.admitted]
    if not accepted:
        return records, None
    return records, parts[max(accepted)]


def _line(records: Sequence[GateRecord], lexical: LexicalPart | None) -> str:
    """Return the progress line of the weight that is used, or of the best one if none is."""
    if lexical is None:
        best = max(records, key=lambda record: record.ndcg.candidate)
        return f"lexical share: off, because no weight is shown to help; {gate_line(best)}"
    (used,) = (record for record in records if record.candidate == _name(lexical))
    return gate_line(used)


def _name(lexical: LexicalPart) -> str:
    return f"lexical share, weight {lexical.weight:g}"
