"""The outcome of a promotion for the command line: console lines and JSON."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from taugate.calibration.charts.numbers import fixed
from taugate.calibration.comparison.publish import NOT_PROMOTED, Published
from taugate.calibration.comparison.rule import MARGIN, PromotionRule
from taugate.storage.json_values import Json

if TYPE_CHECKING:  # comparing needs the extra `calibration`; commands without it import this module
    from taugate.calibration.comparison.decision import PromotionDecision
    from taugate.calibration.comparison.verdicts import ClauseVerdict

_REASONS = {
    "first release": "no release is current, so there is nothing to compare with",
    "same content": "same content as the current release, nothing to promote",
}
PROVISIONAL = "promotion: the current release is now provisional, because its threshold rests on too little evidence"


def report(decision: "PromotionDecision", say: Callable[[str], object]) -> int:
    """Report for each clause whether it holds, and what to do next; returns the exit code.

    Args:
        decision: The comparison.
        say: Prints one line.
    """
    for line in _lines(decision):
        say(line)
    if decision.holds:
        return 0
    say(
        f"taugate: {decision.name}: not promoted, because {decision.objection}. "
        f"`taugate release diff {decision.name}` shows what changed; to promote it anyway, run "
        f"`taugate release promote {decision.name}` without a rule"
    )
    return NOT_PROMOTED


def as_json(rule: PromotionRule, ending: Published) -> dict[str, Json]:
    """Return the object `promotion` of `taugate calibrate --json`.

    Args:
        rule: The requested promotion rule.
        ending: How publishing ended; without a decision, the release could not be promoted under any rule.
    """
    decision = ending.decision
    if decision is None:
        return {"rule": str(rule), "current": None, "promoted": False, "reason": ending.reason, "clauses": []}
    return {
        "rule": str(decision.judged),
        "current": decision.current,
        "promoted": decision.promoted,
        "reason": decision.reason,
        "clauses": [_clause(verdict) for verdict in decision.verdicts],
    }


def _lines(decision: "PromotionDecision") -> list[str]:
    """Return one line per clause, after its warnings."""
    lines = [
        f"warning: {name} was calibrated with --holdout 0, so its figures come from the queries that chose its "
        "threshold"
        for name in decision.optimistic
    ]
    if decision.reason is not None:
        lines.append(f"promotion: {_REASONS[decision.reason]}")
    for verdict in decision.verdicts:
        lines += [_widened(verdict)] if verdict.widened else []
        lines.append(f"promotion: {verdict_sentence(verdict)}")
    return [*lines, PROVISIONAL] if decision.promoted and decision.provisional else lines


def verdict_sentence(verdict: "ClauseVerdict") -> str:
    """Return the verdict on a clause, with its numbers, as a sentence without a period."""
    clause, (before, after) = verdict.clause, verdict.queries
    queries = f"{after:,} queries" if verdict.test == "paired" else f"{before:,} and {after:,} queries"
    if verdict.unit == "document":
        queries += f" about {verdict.documents:,} documents"
    line = (
        f"{clause}: {verdict.finding}, {fixed(verdict.new)} after {fixed(verdict.current)}, "
        f"{'the average document ' if verdict.unit == 'document' else ''}{_limit(verdict)} "
        f"({verdict.confidence:.0%} confidence; {queries}, {verdict.test})"
    )
    if verdict.statement == "document and query":
        line += "; the clause also holds for the average query"
    if verdict.detectable is not None:
        line += f"; these queries cannot exclude a difference below {fixed(verdict.detectable)}"
    if verdict.needed is not None:
        line += f"; about {verdict.needed:,} queries like these would show it"
    elif verdict.finding == "not shown" and verdict.test == "paired":
        line += "; more queries like these would not show it"
    return line


def _limit(verdict: "ClauseVerdict") -> str:
    way = verdict.clause.way
    if verdict.upper >= 0:
        return f"{way} by at most {fixed(verdict.upper)}"
    return f"{'higher' if way == 'lower' else 'lower'} by at least {fixed(-verdict.upper)}"


def _widened(verdict: "ClauseVerdict") -> str:
    clause = verdict.clause
    return (
        f'warning: the margin of "{clause.quantity} not {clause.way}" is {clause.margin:g} instead of {MARGIN:g}: '
        f"{verdict.queries[1]:,} queries cannot support a smaller one. Label more, or name a margin in the rule"
    )


def _clause(verdict: "ClauseVerdict") -> dict[str, Json]:
    return {
        "quantity": verdict.clause.quantity,
        "not": verdict.clause.way,
        "margin": verdict.clause.margin,
        "widened": verdict.widened,
        "current": verdict.current,
        "new": verdict.new,
        "worse_by_at_most": verdict.upper,
        "confidence": verdict.confidence,
        "finding": verdict.finding,
        "test": verdict.test,
        "unit": verdict.unit,
        "statement": verdict.statement,
        "could_have_shown": verdict.detectable,
        "queries_needed": verdict.needed,
        "queries": list(verdict.queries),
    }
