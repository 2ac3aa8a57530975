"""The summary of a release: what it keeps, loses and refuses, in one sentence that is the same everywhere."""

import math
import re
from dataclasses import dataclass

from taugate.retrieval.release.records import RefusalRecord, RefusedQuestions

_CLAUSE = re.compile(r"(?:^|, )(keeps|loses|refuses) ", re.IGNORECASE)


@dataclass(frozen=True)
class LostAnswers:
    """Right answers that no user gets.

    Attributes:
        lost: Number of queries with a relevant document in their top K that keep none.
        answers: Number of queries with a relevant document in their top K.
        upper: One-sided 95 % limit of the share lost.
    """

    lost: int
    answers: int
    upper: float


def summary_sentence(
    kept: float, k: int, lost: LostAnswers | None, refusal: RefusalRecord | None, refused: LostAnswers | None = None
) -> str:
    """Write the summary, from queries that did not influence the figure that they count for.

    Args:
        kept: Mean number of results of an answerable query that is answered.
        k: K, the number of results before the threshold.
        lost: Answers lost although the query is answered; None if no query finds an answer.
        refusal: Record of the default refusal, None without one.
        refused: Answers lost because the query is refused; None without a refusal, or if no query finds an answer.
    """
    clauses = [f"keeps {kept:.1f} of {k} results"]
    if lost is not None:
        cut = f"loses {lost.lost:,} of {lost.answers:,} answers"
        if refused is None:
            clauses.append(f"{cut} {_at_most(lost)}")
        else:
            ending = f"{refused.lost:,} of {refused.answers:,} to ρ {_at_most(refused)}"
            clauses.append(f"{cut} to τ {_at_most(lost)} and {ending}")
    if refusal is not None:
        clauses.append(f"refuses {_count(refusal.off_topic)} off-topic questions")
        others = {
            "short requests": refusal.request,
            "near misses": refusal.near_miss,
            "unanswerable questions": refusal.unanswerable,
        }
        clauses += [f"{_count(counted)} {name}" for name, counted in others.items() if counted is not None]
        if refusal.provisional:
            clauses[-1] += " (provisional)"
    sentence = ", ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def summary_parts(sentence: str) -> dict[str, str]:
    """Return the clauses of a summary by their verbs, such as {"Keeps": "4.8 of 5 results", "Loses": …, "Refuses": …}.

    A sentence of another version that has no such clauses is returned whole, as the only part.
    """
    parts = _CLAUSE.split(sentence.removesuffix("."))
    if parts[0] or len(parts) == 1:
        return {"Result": sentence}
    return {verb.capitalize(): text for verb, text in zip(parts[1::2], parts[2::2], strict=True)}


def _at_most(lost: LostAnswers) -> str:
    percent = math.ceil(round(1000 * lost.upper, 6)) / 10  # an upper limit is never rounded down
    return f"(at most {percent:.1f} %)"


def _count(counted: RefusedQuestions) -> str:
    return f"{counted.refused:,} of {counted.queries:,}"
