"""Sentences about queries without an answer: one for whoever decides, and more for whoever calibrates."""

import math

from taugate.calibration.settings.rules import CONFIDENCE
from taugate.retrieval.release.manifest import DataRecord
from taugate.retrieval.release.records import AbstentionRecord, ErrorLimit, NoAnswerRecord

# What a query is scored by, for people (`taugate.retrieval.policy.abstention.ScoreName`).
SCORES = {
    "best_similarity": "its best similarity",
    "margin": "how far its best result is ahead of the others",
    "z": "how far its best similarity stands out from those of random documents",
    "lexical": "the words that it shares with its results (BM25)",
    "model": "a model of its best similarity, how far that stands out, and the words that it shares with its results",
}
_TESTS = {"query": "exact binomial", "document": "e-value by document"}


def headline(record: NoAnswerRecord) -> str:
    """Say how many questions without an answer still get a result, for people who read no further.

    Args:
        record: Measured.
    """
    if record.asked == "off_topic":
        count = round(record.answered * record.queries)
        return (
            f"Of {record.queries} questions about other subjects, which no document here answers, {_gets(count)} a "
            "result. These are easy cases, so this estimate is optimistic."
        )
    return f"Of 100 questions that have no answer here, {_of_hundred(record.answered)} a result."


def evidence(record: NoAnswerRecord) -> str:
    """Say what the headline rests on.

    Args:
        record: What was measured.
    """
    most = ""
    if record.upper < 1:  # all of them is no limit
        most = f"at most {most_percent(record.upper)} with {100 * CONFIDENCE:g} % confidence"
    if record.asked == "off_topic":
        limit = most and f" For easy cases like these, the share is {most}."
        return (
            "No unanswerable question is labelled, and one closer to the documents gets a result more often: label "
            f"some, with a score of 0, to know how often.{limit}"
        )
    documents = f" about {record.evidence.units:,} documents" if record.evidence.unit == "document" else ""
    found = f"{100 * record.answered:.1f} %" + (most and f", {most}")
    return f"Measured on {record.queries:,} unanswerable questions{documents}: {found}."


def guarantee(answered: ErrorLimit, refused: ErrorLimit, confidence: float, *, certified: bool) -> str:
    """Say what is certified of both errors.

    Args:
        answered: Limits of the two errors.
        refused: Limits of the two errors.
        confidence: Of both together.
        certified: Whether both limits asked for hold.
    """
    first = f"at most {most_percent(answered.asked if certified and answered.asked else answered.upper)} of "
    first += "unanswerable queries are answered"
    limit = refused.asked if certified and refused.asked is not None else refused.upper
    second = f"at most {most_percent(limit)} of answerable ones are refused"
    if refused.asked is None:
        second += ", a limit that was found and not asked for"
    if not certified and answered.asked is not None:
        first += f", where {most_percent(answered.asked)} was asked for,"
    tests = " and ".join(dict.fromkeys(_TESTS[each.evidence.unit] for each in (answered, refused)))
    return (
        f"With {100 * confidence:.4g} % confidence {first} and {second}, for queries drawn like the "
        f"{answered.queries:,} unanswerable and {refused.queries:,} answerable ones that certified it (fixed-sequence "
        f"tests, each at half of the error; {tests})."
    )


def remedy(record: AbstentionRecord, data: DataRecord) -> str:
    """Say why the limits asked for cannot be had together, what can, and how many labels it takes where these are few.

    Args:
        record: Of the abstention policy.
        data: How many queries of each kind are labelled.
    """
    answered, refused = record.answered_unanswerable, record.empty_answerable
    labels = [
        f"with {limit.queries:,} certifying {kind} queries {name} {limit.asked:g} cannot be certified even without an "
        f"error; {limit.queries_needed:,} are needed, so label about {_labelled(limit, total):,}"
        for limit, kind, name, total in (
            (answered, "unanswerable", "--max-answered", data.unanswerable),
            (refused, "answerable", "--max-empty", data.answerable),
        )
        if limit.asked is not None and limit.queries_needed is not None and limit.queries_needed > limit.queries
    ]
    table = ", ".join(f"{100 * each.empty:.4g} % → {most_percent(each.answered)}" for each in record.tradeoff)
    if labels:
        shown = f" What these show, largest share refused → smallest share answered: {table}." if table else ""
        return f"{'; '.join(labels)}.{shown}"
    larger = f"--max-answered {_rounded_up(answered.upper):g}"
    if record.least_empty is not None and record.least_empty < 1:
        larger += f" or --max-empty {_rounded_up(record.least_empty):g}"
    return (
        f"the two limits cannot be had together: with at most {most_percent(refused.upper)} of answerable queries "
        f"refused, the smallest share of unanswerable ones answered that can be certified is "
        f"{most_percent(answered.upper)}. Largest share refused → smallest share answered: {table}. Allow {larger}, or "
        "use an encoder that tells the two kinds apart better."
    )


def most_percent(share: float) -> str:
    """A share as a limit, never rounded down, in percent."""
    return f"{math.ceil(round(1000 * share, 6)) / 10:g} %"


def _rounded_up(share: float) -> float:
    return math.ceil(1000 * share) / 1000


def _labelled(limit: ErrorLimit, labelled: int) -> int:
    """Return how many labels it takes in all, of which only some certify."""
    return math.ceil((limit.queries_needed or 0) * labelled / limit.queries)


def _of_hundred(share: float) -> str:
    if 0 < share < 0.01:
        return "fewer than 1 still gets"
    if 0.99 < share < 1:
        return "more than 99 still get"
    return {0.0: "none gets", 1.0: "all still get"}.get(share) or _gets(round(100 * share))


def _gets(count: int) -> str:
    if not count:
        return "none gets"
    return f"{count} still {'gets' if count == 1 else 'get'}"
