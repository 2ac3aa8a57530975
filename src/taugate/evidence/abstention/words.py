"""Sentences about queries without an answer: a headline for readers who decide, and details for those who calibrate."""

import math

from taugate.evidence.rules import CONFIDENCE
from taugate.release.manifest import DataRecord
from taugate.release.promises import percent_at_most
from taugate.release.refusal_records import ErrorLimit, QuestionKind, RefusedQuestions, RequestedLimits

# Descriptions of the scores for people (`taugate.policy.abstention.ScoreName`).
SCORES = {
    "best_similarity": "its best similarity",
    "margin": "how far its best result is ahead of the others",
    "z": "how far its best similarity stands out from those of random documents",
    "lexical": "the words that it shares with its results (BM25)",
    "model": "a model of its best similarity, how far that stands out, and the words that it shares with its results",
    "components": "a model of its best score, the best score of each component, and how far that stands out",
}
_TESTS = {"query": "exact binomial", "document": "e-value by document"}


def headline(kind: QuestionKind, counted: RefusedQuestions) -> str:
    """State how many questions without an answer still get a result, for people who read no further."""
    if kind == "off_topic":
        answered = _gets(counted.queries - counted.refused)
        return (
            f"Of {counted.queries} questions about other subjects, which no document here answers, {answered} a "
            "result. These are easy cases, so this estimate is optimistic."
        )
    return f"Of 100 questions that have no answer here, {_of_hundred(counted.answered)} a result."


def evidence(kind: QuestionKind, counted: RefusedQuestions) -> str:
    """State the evidence for the headline."""
    limit = ""
    if counted.lower > 0:  # a share of 1 is not a limit
        limit = f"at most {percent_at_most(1 - counted.lower)} with {100 * CONFIDENCE:g} % confidence"
    if kind == "off_topic":
        sentence = limit and f" For easy cases like these, the share is {limit}."
        return (
            "No unanswerable question is labelled, and one closer to the documents gets a result more often: label "
            f"some, with a score of 0, to know how often.{sentence}"
        )
    by_document = counted.evidence is not None and counted.evidence.unit == "document"
    documents = f" about {counted.evidence.units:,} documents" if counted.evidence and by_document else ""
    share = f"{100 * counted.answered:.1f} %" + (limit and f", {limit}")
    return f"Measured on {counted.queries:,} unanswerable questions{documents}: {share}."


def limits_guarantee(answered: ErrorLimit, refused: ErrorLimit, confidence: float, *, certified: bool) -> str:
    """State the certified limits of both errors; the manifest holds this sentence.

    The confidence is that of both limits together.
    """
    first = f"at most {percent_at_most(answered.asked if certified and answered.asked else answered.upper)} of "
    first += "unanswerable queries are answered"
    limit = refused.asked if certified and refused.asked is not None else refused.upper
    second = f"at most {percent_at_most(limit)} of answerable ones are refused"
    if refused.asked is None:
        second += ", a limit that was found and not asked for"
    if not certified and answered.asked is not None:
        first += f", where {percent_at_most(answered.asked)} was asked for,"
    tests = " and ".join(dict.fromkeys(_TESTS[error.evidence.unit] for error in (answered, refused)))
    return (
        f"With {100 * confidence:.4g} % confidence {first} and {second}, for queries drawn like the "
        f"{answered.queries:,} unanswerable and {refused.queries:,} answerable ones that certified it (fixed-sequence "
        f"tests, each at half of the error; {tests})."
    )


def limits_remedy(limits: RequestedLimits, data: DataRecord) -> str:
    """Explain why the requested limits cannot both hold, which ones can, and how many labels are missing."""
    answered, refused = limits.answered, limits.refused
    labels = [
        f"{name} {limit.asked:g} takes {limit.queries_needed:,} certifying {kind} queries, and there are "
        f"{limit.queries:,}: label about {_labels_needed(limit, total):,} in all with `taugate judge`"
        for limit, kind, name, total in (
            (answered, "unanswerable", "--max-answered", data.unanswerable),
            (refused, "answerable", "--max-empty", data.answerable),
        )
        if limit.asked is not None and limit.queries_needed is not None and limit.queries_needed > limit.queries
    ]
    if labels:
        return f"{'; '.join(labels)}."
    larger = f"--max-answered {_rounded_up(answered.upper):g}"
    if limits.least_empty is not None and limits.least_empty < 1:
        larger += f" or --max-empty {_rounded_up(limits.least_empty):g}"
    return (
        f"the two limits cannot both hold: with at most {percent_at_most(refused.upper)} of answerable queries "
        f"refused, {percent_at_most(answered.upper)} of unanswerable ones are answered. Allow {larger}, or use an "
        "encoder that separates the two kinds better; the report has the trade-off."
    )


def _rounded_up(share: float) -> float:
    return math.ceil(1000 * share) / 1000


def _labels_needed(limit: ErrorLimit, labelled: int) -> int:
    """Return the total number of labels needed, because only some of them certify."""
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
